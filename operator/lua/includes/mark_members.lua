--[[
  Seal the completed members, so that a manual retry does not change the ledger, and doom every member if the
  group was given up: a worker that takes a doomed job fails it with `doom` and does not run it. The failure
  consumes the mark, so BullMQ removes such a job when it fails: nobody can retry it before the next settle.

  A member that has started before it is doomed is recorded. No other member of the group can start later.
  `failing` is whether this call gives the group up: what has failed until then has run.
]]
-- @include has_started
-- @include remove_on_fail
local function mark_members(k, doom, failing)
  local function mark(key, is_done)
    local job = redis.call("HMGET", key, "parentKey", "defa", "opts")
    if job[1] ~= k.parent and job[1] ~= k.sealed then return end
    local sealed = is_done and k.sealed or job[1]
    local opts = doom and remove_on_fail(job[3]) or job[3]
    if sealed == job[1] and opts == job[3] and (job[2] or not doom) then return end
    if doom and not is_done and has_started(key) then redis.call("HSET", k.parent, "started:" .. key, 1) end
    redis.call("HSET", key, "parentKey", sealed, "opts", opts)
    if doom and not job[2] then redis.call("HSET", key, "defa", doom) end
  end
  for _, key in ipairs(redis.call("HKEYS", k.done)) do mark(key, true) end
  if not doom then return end
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do mark(key, false) end
  for _, key in ipairs(redis.call("ZRANGE", k.failed, 0, -1)) do
    mark(key, false)
    if failing and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0 then
      redis.call("HSET", k.parent, "started:" .. key, 1)
    end
  end
end
