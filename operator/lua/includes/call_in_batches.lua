--[[
  Call a command with any number of values. unpack alone fails at about 7,000 values.
]]
local function call_in_batches(command, key, values)
  local result = 0
  for first = 1, #values, 1000 do
    result = result + redis.call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
  return result
end
