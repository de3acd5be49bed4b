--[[
  Return what became of an undo: "resolved", "completed", "pending" or "failed".
]]
local function outcome_of_undo(k, key)
  if redis.call("HEXISTS", k.undo_done, key) == 1 then return "completed" end
  if redis.call("HEXISTS", k.resolved, key) == 1 then return "resolved" end
  if redis.call("SISMEMBER", k.undo_open, key) == 1 then return "pending" end
  return "failed"
end
