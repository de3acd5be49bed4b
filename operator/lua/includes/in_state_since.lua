--[[
  Return since when a group has been in its state, or nil if its hash does not say.
]]
-- @include saga
local function in_state_since(group_key, state)
  local times = redis.call("HMGET", group_key, "createdAt", "failedAt", "compensatingAt", "finishedAt")
  -- A group whose undos are retried has an earlier end, and began to compensate again.
  return tonumber(saga.has_ended(state) and times[4] or (state == "COMPENSATING" and (times[3] or times[2])) or times[1])
end
