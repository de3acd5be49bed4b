--[[
  The saga as a table: (state, event) -> state. No I/O.

  The comment after each event explains it; `make generate` writes the comments to docs/design.md.
]]
local SAGA = {
  ACTIVE = {
    all_completed = "COMPLETED", -- every job completed
    must_undo = "COMPENSATING", -- a job failed for good or the group was cancelled, and there is something to undo or to wait for
    nothing_to_undo = "FAILED", -- a job failed for good or the group was cancelled, and there is nothing to undo or to wait for
  },
  COMPENSATING = {
    undone = "FAILED", -- no job is active, and every undo completed or was resolved
    undo_failed = "FAILED_COMPENSATION", -- no job is active, every undo finished, and at least one failed for good
  },
  FAILED = {
    late_undo_failed = "FAILED_COMPENSATION", -- an undo that ended after the group failed for good
  },
  COMPLETED = {},
  FAILED_COMPENSATION = {
    retried = "COMPENSATING", -- its failed undos are retried
    all_undone = "FAILED", -- every undo completed or was resolved
  },
}

local saga = {
  -- A state that is not in the table, as in a damaged hash, has no transitions either.
  has_ended = function(state) return state ~= "ACTIVE" and state ~= "COMPENSATING" end,

  next_state = function(state, facts)
    local event
    local no_undo_is_due = facts.undos_to_make == 0 and facts.undos_open == 0
    if state == "ACTIVE" then
      -- A group that was given up may have only completed members left: those that somebody ran again.
      if facts.completed == facts.total and not facts.failing then
        event = "all_completed"
      elseif facts.failed > 0 or facts.requested then
        -- Open members are active, or have not been dropped yet: the group ends after them.
        local effects = facts.completed > 0 or facts.open > 0 or facts.undos > 0
        event = effects and "must_undo" or "nothing_to_undo"
      end
    elseif state == "COMPENSATING" then
      if facts.open == 0 and no_undo_is_due then
        event = facts.undos_failed > 0 and "undo_failed" or "undone"
      end
    elseif state == "FAILED" then
      if no_undo_is_due and facts.undos_failed > 0 then event = "late_undo_failed" end
    elseif state == "FAILED_COMPENSATION" then
      if facts.retried then
        event = "retried"
      elseif no_undo_is_due and facts.undos_failed == 0 then
        event = "all_undone"
      end
    end
    return event and SAGA[state][event] or state
  end,
}
