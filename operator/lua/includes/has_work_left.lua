--[[
  Return whether the removal of an ended group would lose work: jobs of its end that are still to be added, or, in a
  FAILED group, an undo that somebody retried and that runs or has failed again. Removal that has begun goes on.

  `resolved` and `end_left` are the fields `resolvedCount` and `onEndLeft` of the group.
]]
local function has_work_left(k, state, resolved, end_left)
  local has_undo = state == "FAILED" and (redis.call("SCARD", k.undo_open) > 0
    or redis.call("ZCARD", k.undo_failed) ~= tonumber(resolved or 0))
  return (has_undo or end_left) and redis.call("EXISTS", k.tomb) == 0
end
