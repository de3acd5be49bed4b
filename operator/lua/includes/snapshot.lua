--[[
  Return a group as a table with the names of its hash; jobgroup/store/replies.py reads it into a GroupState.

  A field that the hash does not have is left out. While the group runs, counts come from the ledger, so they
  are right even if no driver has settled the group yet. After its end they are those of the last settle: a
  manual retry changes the ledger, and the counts would contradict the state.
]]
-- @include names
-- @include saga
local function snapshot(k, gid)
  local stored = { "name", "state", "createdAt", "updatedAt", "totalJobs", "cancelledCount", "revision",
    "failedJobId", "reason", "finishedAt", "undoCount", "failedAt", "failedAttempts",
    "completedCount", "failedCount", "undoneCount", "undoFailedCount", "resource", "recorded", "attempt",
    "compensatingAt", "ttlSeconds", "deadlineSeconds", "retries", "resolvedCount", "onEndError" }
  local group = { id = gid, owner = redis.call("HGET", k.parent, "owner") or names.headless, revision = "1" }
  for n, value in ipairs(redis.call("HMGET", k.group, unpack(stored))) do group[stored[n]] = value or group[stored[n]] end
  if group.recorded then
    group.records = {}
    for n, entry in ipairs(redis.call("LRANGE", k.records, 0, -1)) do group.records[n] = cjson.decode(entry) end
  end
  if saga.has_ended(group.state) then
    group.undoneCount, group.undoFailedCount = group.undoneCount or 0, group.undoFailedCount or 0
    return group
  end

  -- While failed undos are retried, the end before has no meaning.
  group.finishedAt = nil
  local done, failed, open = redis.call("HLEN", k.done), redis.call("ZCARD", k.failed), redis.call("SCARD", k.open)
  local undone, undo_failed = redis.call("HLEN", k.undo_done), redis.call("ZCARD", k.undo_failed)
  -- Jobs that were removed manually are in no part of the ledger; they count as failed.
  local removed = group.totalJobs - group.cancelledCount - done - failed - open
  local undos_removed = (group.undoCount or 0) - undone - undo_failed - redis.call("SCARD", k.undo_open)
  group.completedCount = done
  group.failedCount = failed + math.max(0, removed)
  group.undoneCount = undone
  group.undoFailedCount = math.max(0, undo_failed + math.max(0, undos_removed) - (group.resolvedCount or 0))
  return group
end
