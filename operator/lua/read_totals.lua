--[[
  Count the groups by state, and find how old the oldest are, without looking at any group: a few
  lookups, however many there are. A group on the wake-up list is in no state until it is settled.

  KEYS[1] parked   zset, where groups wait until a worker wakes them
  KEYS[2] wakeups  list, the groups that need a look
  KEYS[3] events   stream, in which BullMQ notes when it puts a group on that list

  Returns  {wakeups, waited, {state, count, since} of each}: how many groups are on the wake-up list, for
           how many milliseconds the first of them, and since when the oldest group of a state is there
]]
-- @include bands
local parked, wakeups, events = KEYS[1], KEYS[2], KEYS[3]

-- More than park.lua leaves in the stream: whatever was put on the list and is noted is among them.
local LOOKS = 1200

local function waited()
  local first = redis.call("LINDEX", wakeups, 0)
  if not first then return 0 end
  local noted = redis.call("XRANGE", events, "-", "+", "COUNT", LOOKS)
  -- If its note was trimmed away, it is older than all that are left.
  local since = noted[1]
  for _, entry in ipairs(noted) do
    local fields = entry[2]
    for i = 1, #fields, 2 do
      if fields[i] == "jobId" and fields[i + 1] == first then since = entry end
    end
  end
  -- By the clock that wrote the note.
  local now = redis.call("TIME")
  return since and math.floor(now[1] * 1000 + now[2] / 1000) - string.match(since[1], "^%d+") or 0
end

local places, above = bands()
local answer = { redis.call("LLEN", wakeups), waited() }
for state, place in pairs(places) do
  local from, to = string.format("%.0f", place), string.format("(%.0f", place + above)
  local first = redis.call("ZRANGEBYSCORE", parked, from, to, "WITHSCORES", "LIMIT", 0, 1)
  local since = first[2] and string.format("%.0f", first[2] - place) or ""
  answer[#answer + 1] = { state, redis.call("ZCOUNT", parked, from, to), since }
end
return answer
