--[[
  Return a group as jobgroup/snapshot.py reads it, its counts from the ledger as it is now.
]]
local function snapshot(k, gid)
  local g = redis.call("HMGET", k.group, "name", "state", "createdAt", "updatedAt", "totalJobs", "cancelledCount",
    "revision", "failedJobId", "reason", "finishedAt", "undoCount", "failedAt", "failedAttempts")
  local completed = redis.call("HLEN", k.done)
  local failed = redis.call("ZCARD", k.failed)
  local undone, undo_failed = redis.call("HLEN", k.undo_done), redis.call("ZCARD", k.undo_failed)
  local lost = math.max(0, (g[11] or 0) - undone - undo_failed - redis.call("SCARD", k.undo_open))
  local removed = math.max(0, g[5] - g[6] - completed - failed - redis.call("SCARD", k.open))
  return { gid, g[1], g[2], g[3], g[4], g[5], tostring(completed), tostring(failed + removed), g[6], g[7],
    g[8] or "", g[9] or "", g[10] or "", g[11] or "0", tostring(undone), tostring(undo_failed + lost),
    g[12] or "", g[13] or "0", redis.call("HGET", k.parent, "owner") }
end
