--[[
  Settle a group for a request of a person and park it. `entered` lists the states that the group has entered since
  the request began; this call adds to it. `resolved` is how many undos the request has resolved, or nil.

  Returns the state of the group, and the reply of settle_group.lua with a snapshot.
]]
-- @include park
-- @include settle
-- @include snapshot
local function settle_request(k, prefix, gid, now, grace, entered, resolved)
  local state, _, more, _, now_entered = settle(k, prefix, gid, now, "", grace)
  park(k, gid, state, more, "")
  for _, each in ipairs(now_entered) do entered[#entered + 1] = each end
  return state, cjson.encode({ state = state, entered = entered, changed = #entered > 0, settledAt = now, more = more,
    undoResolved = resolved, group = snapshot(k, gid) })
end
