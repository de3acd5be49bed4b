--[[
  Count the groups by state and find the oldest of each state, with a few lookups for any number of groups.
  A group on the wake-up list counts in no state until it is settled.

  KEYS[1] parked   zset of the parked groups
  KEYS[2] wakeups  list of the groups to settle
  KEYS[3] events   stream with an event for each group that BullMQ puts on that list

  Returns  JSON:
           wakeups  how many groups are on the wake-up list
           waited   for how many milliseconds the first of them has been there
           groups   state -> number of groups
           oldest   state -> since when the oldest group has been in it, if the state has a group
]]
-- @include state_scores
local parked, wakeups, events = KEYS[1], KEYS[2], KEYS[3]

-- More entries than park.lua leaves in the stream.
local MAX_ENTRIES = 1200

local function waited()
  local first = redis.call("LINDEX", wakeups, 0)
  if not first then return 0 end
  local entries = redis.call("XRANGE", events, "-", "+", "COUNT", MAX_ENTRIES)
  -- An entry that was trimmed is older than all that are left.
  local since = entries[1]
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    for i = 1, #fields, 2 do
      if fields[i] == "jobId" and fields[i + 1] == first then since = entry end
    end
  end
  -- The clock of Redis wrote the ids of the entries.
  local now = redis.call("TIME")
  return since and math.floor(now[1] * 1000 + now[2] / 1000) - string.match(since[1], "^%d+") or 0
end

local scores, above = state_scores()
local groups, oldest = {}, {}
for state, lowest in pairs(scores) do
  local from, to = string.format("%.0f", lowest), string.format("(%.0f", lowest + above)
  local first = redis.call("ZRANGEBYSCORE", parked, from, to, "WITHSCORES", "LIMIT", 0, 1)
  groups[state] = redis.call("ZCOUNT", parked, from, to)
  if first[2] then oldest[state] = string.format("%.0f", first[2] - lowest) end
end
return cjson.encode({ wakeups = redis.call("LLEN", wakeups), waited = waited(), groups = groups, oldest = oldest })
