--[[
  Store the state and the counts of a settled group, and the status of each member, if they changed.
]]
-- @include call_in_batches
-- @include publish_owner_change
-- @include saga
local function store_counts(k, gid, now, before, state, facts, undos, more)
  local cancelled = redis.call("HGET", k.group, "cancelledCount")
  local counts = table.concat({ state, facts.completed, facts.failed, cancelled, facts.undos, undos.done, undos.failed }, " ")
  if counts == redis.call("HGET", k.group, "counts") then return end
  local statuses = {}
  local function mark(keys, status)
    for _, key in ipairs(keys) do
      statuses[#statuses + 1] = key
      statuses[#statuses + 1] = status
    end
  end
  mark(redis.call("HKEYS", k.done), "completed")
  mark(redis.call("ZRANGE", k.failed, 0, -1), "failed")
  if state == "COMPENSATING" and not more then mark(redis.call("SMEMBERS", k.open), "active") end
  call_in_batches("HSET", k.jobs, statuses)
  redis.call("HSET", k.group, "state", state, "completedCount", facts.completed, "failedCount", facts.failed,
    "undoneCount", undos.done, "undoFailedCount", undos.failed, "counts", counts, "updatedAt", now)
  if saga.has_ended(state) and not saga.has_ended(before) then
    redis.call("HSET", k.group, "finishedAt", now)
    redis.call("ZADD", k.ended, now, gid)
  end
  redis.call("HINCRBY", k.group, "revision", 1)
  publish_owner_change(k, gid)
end
