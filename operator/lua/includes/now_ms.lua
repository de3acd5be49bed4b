--[[
  Return the time of Redis in milliseconds since the epoch. Callers settle a group from several machines, and one
  call is sent long before it runs; a single clock measures the grace period.
]]
local function now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
