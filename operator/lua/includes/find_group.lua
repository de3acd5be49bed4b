--[[
  Return the keys of a group and, if the group cannot be used, the code of the error.

  A group with a newer format is refused: a newer release created it, and these scripts would misread it.
]]
-- @include keys_of
-- @include formats
local function find_group(parent, prefix, gid)
  local found = redis.call("HMGET", parent, "queue", "format", "answers")
  local k = keys_of(prefix, gid, found[1] or "")
  k.has_answers = found[3]
  if formats.is_newer(found[2]) then return k, "NEWERFORMAT" end
  if not found[1] or redis.call("EXISTS", k.group) == 0 then return k, "GROUPNOTFOUND" end
  return k
end
