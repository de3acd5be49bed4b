--[[
  Say where in the set of parked groups each state has its place, and how far above a group its undos
  have theirs, which do not count as groups.

  A group's score is when it was made, or when its undoing began, raised by its state's place. So the
  groups of a state can be counted, and the oldest of them found, without looking at any. Those above
  1e15 have ended, and are out of the way of a resync.
]]
local function bands()
  local places = { ACTIVE = 0, COMPENSATING = 1e14, FAILED = 1e15, FAILED_COMPENSATION = 1.1e15, COMPLETED = 2e15 }
  return places, 5e13
end
