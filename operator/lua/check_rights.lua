--[[
  Return which commands the user of Redis may not run. Up to 6.2, Redis cannot tell.

  KEYS[1] key       a key on which the commands must be allowed; it is not read
  ARGV[1] commands  separated by spaces

  Returns  the commands that are refused
]]
local key, commands = KEYS[1], ARGV[1]

local refused = {}
if not redis.acl_check_cmd then return refused end
for command in string.gmatch(commands, "%S+") do
  if not redis.acl_check_cmd(command, key) then refused[#refused + 1] = command end
end
return refused
