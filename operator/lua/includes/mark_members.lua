--[[
  Seal the completed members, so that a manual retry does not change the ledger, and doom every member if the
  group was given up: a worker that takes a doomed job fails it with `doom` and does not run it. A failure
  consumes the mark. A failed member is marked again. Nobody notices the failure of a sealed member, so BullMQ
  removes it when it fails; the ledger has its result.
]]
-- @include remove_on_fail
local function mark_members(k, doom)
  local function mark(key, is_done)
    local job = redis.call("HMGET", key, "parentKey", "defa")
    if job[1] then
      local sealed = is_done and k.sealed or job[1]
      if (doom and not job[2]) or sealed ~= job[1] then
        redis.call("HSET", key, "parentKey", sealed)
        if doom then redis.call("HSET", key, "defa", doom) end
        if doom and is_done then remove_on_fail(key) end
      end
    end
  end
  for _, key in ipairs(redis.call("HKEYS", k.done)) do mark(key, true) end
  if doom then
    for _, key in ipairs(redis.call("SMEMBERS", k.open)) do mark(key, false) end
    for _, key in ipairs(redis.call("ZRANGE", k.failed, 0, -1)) do mark(key, false) end
  end
end
