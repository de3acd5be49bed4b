--[[
  Return the option `group` of a job, with which members are stored; nil if the job has none.
]]
local function group_option(opts)
  local ok, decoded = pcall(cjson.decode, opts)
  local group = ok and type(decoded) == "table" and decoded.group
  return type(group) == "table" and group or nil
end
