--[[
  Return the lowest score of each state in the set of parked groups, and an offset. The pseudo parent of a
  group's undos has the score of the group plus the offset, so it is not counted as a group.

  A score is a time plus the state's number: when the group was created, when its compensation began, or when it
  ended. So the groups of a state can be counted, and the oldest one found, without reading any group. The states
  are in the order in which a resync needs them: running, failed, completed.
]]
local function state_scores()
  local scores = { ACTIVE = 0, COMPENSATING = 1e14, FAILED = 1e15, FAILED_COMPENSATION = 1.1e15, COMPLETED = 2e15 }
  return scores, 5e13
end
