--[[
  The saga as a table: (state, event) -> state. No I/O: read it, draw it, test it exhaustively.

  What each event is stands behind it; docs/design.md is made of that by `make generate`.
]]
local SAGA = {
  ACTIVE = {
    all_completed = "COMPLETED", -- every job completed
    must_undo = "COMPENSATING", -- a job failed for good or the group was given up, and there is something to undo or to wait for
    nothing_to_undo = "FAILED", -- the same, and there is nothing to undo or to wait for
  },
  COMPENSATING = {
    undone = "FAILED", -- no job is at work any more, and every undo completed
    undo_failed = "FAILED_COMPENSATION", -- the same, but for an undo that failed for good
  },
  COMPLETED = {},
  FAILED = {},
  FAILED_COMPENSATION = {},
}

local function saga(state, facts)
  local event
  if state == "ACTIVE" then
    if facts.completed == facts.total then
      event = "all_completed"
    elseif facts.failed > 0 or facts.requested then
      -- Open members are at work, or could not be dropped yet: the end must wait for them.
      local effects = facts.completed > 0 or facts.open > 0 or facts.undos > 0
      event = effects and "must_undo" or "nothing_to_undo"
    end
  elseif state == "COMPENSATING" then
    if facts.open == 0 and facts.undos_to_make == 0 and facts.undos_open == 0 then
      event = facts.undos_failed > 0 and "undo_failed" or "undone"
    end
  end
  return event and SAGA[state][event] or state
end
