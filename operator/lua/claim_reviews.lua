--[[
  Claim the reviews for a driver: one driver at a time reviews the groups, so that more drivers cost Redis no
  more reviews. A claim ends if it is not renewed in time. A driver that understands a higher format of groups
  takes it over, because the other one cannot review groups of that format.

  KEYS[1] reviewer  string, the highest format that the driver understands, and its name
  ARGV[1] driver    name of the driver
  ARGV[2] lasts     milliseconds until the claim ends

  Returns  1 if this driver reviews, else 0
]]
-- @include formats
local reviewer, driver, lasts = KEYS[1], ARGV[1], tonumber(ARGV[2])

-- An error if somebody wrote a key of another type: the claim replaces it.
local claim = redis.pcall("GET", reviewer)
local format, holder = string.match(type(claim) == "string" and claim or "", "^(%d+) (.+)$")
-- A claim without an end, or with a later one, is not one of a driver: the clock was set back, or somebody wrote it.
local left = redis.call("PTTL", reviewer)
local holds = holder and tonumber(format) >= formats.highest and left > 0 and left <= lasts
if holds and holder ~= driver then return 0 end
redis.call("SET", reviewer, string.format("%d %s", formats.highest, driver), "PX", lasts)
return 1
