--[[
  Restore when a group reaches its deadline, or the end of its time to live, if somebody deleted that.
]]
-- @include saga
local function restore_due(k, gid, group)
  local start, seconds
  if group.state == "ACTIVE" then
    start, seconds = group.createdAt, group.deadlineSeconds
  elseif saga.has_ended(group.state) and group.state ~= "FAILED_COMPENSATION" then
    start, seconds = group.finishedAt, group.ttlSeconds
  end
  if not tonumber(start) or not tonumber(seconds) then return end
  -- The key may have another type. That must not stop the review.
  redis.pcall("ZADD", k.due, "NX", string.format("%.0f", start + seconds * 1000), gid)
end
