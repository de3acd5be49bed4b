--[[
  Seal the completed members `done`, so that a manual retry does not change the ledger, and doom every member if the
  group was given up: a worker that takes a doomed job fails it with `doom` and does not run it. The failure
  consumes the mark, so BullMQ removes such a job when it fails: nobody can retry it before the next settle.

  A member that has started before it is doomed is recorded. No other member of the group can start later.
  `failing` is whether this call gives the group up: what has failed until then has run.
]]
-- @include has_started
-- @include remove_on_fail
local function mark_members(k, done, doom, failing)
  local function mark(key, is_done)
    local parent = redis.call("HGET", key, "parentKey")
    if parent ~= k.parent and parent ~= k.sealed then return end
    if is_done and parent ~= k.sealed then redis.call("HSET", key, "parentKey", k.sealed) end
    if not doom then return end
    local job = redis.call("HMGET", key, "defa", "opts")
    local opts = remove_on_fail(job[2])
    if job[1] and opts == job[2] then return end
    if not is_done and has_started(key) then redis.call("HSET", k.parent, "started:" .. key, 1) end
    redis.call("HSET", key, "opts", opts, "defa", job[1] or doom)
  end
  for _, key in ipairs(done) do mark(key, true) end
  if not doom then return end
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do mark(key, false) end
  for _, key in ipairs(redis.call("ZRANGE", k.failed, 0, -1)) do
    mark(key, false)
    if failing and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0 then
      redis.call("HSET", k.parent, "started:" .. key, 1)
    end
  end
end
