--[[
  Return whether a job belongs to a group: somebody may have added another job with the id of a member or an undo
  that is gone. A job that somebody removed from its parent still belongs to its group.
]]
-- @include group_option
local function belongs(k, gid, key)
  local job = redis.call("HMGET", key, "parentKey", "opts", "data")
  if job[1] then return job[1] == k.parent or job[1] == k.sealed or job[1] == k.undo
    or job[1] == k.undo_sealed end
  local group = group_option(job[2] or "{}")
  local undo_data = '{"groupId":"' .. gid .. '",'
  return (group and group.id == gid) or string.sub(job[3] or "", 1, #undo_data) == undo_data
end
