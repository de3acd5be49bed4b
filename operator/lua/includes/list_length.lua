--[[
  Return the length of a list, 0 if the key has another type.
]]
local function list_length(key)
  return redis.call("TYPE", key).ok == "list" and redis.call("LLEN", key) or 0
end
