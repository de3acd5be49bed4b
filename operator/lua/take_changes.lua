--[[
  Take the ids of an owner's changed groups in hand. They are kept until the owner says that it has
  looked at them: what is in hand when it dies is taken anew by whoever follows it.

  KEYS[1] changed  sorted set, groups that changed and that nobody has in hand
  KEYS[2] taken    sorted set, groups in hand
  KEYS[3] marker   sorted set, what the owner waits for
  ARGV[1] looked   packed ids of groups in hand that have been looked at
  ARGV[2] again    1 if all that is in hand is to be taken anew, or 0
  ARGV[3] most     so many at a time

  Returns  the ids that are in hand from now on
]]
-- @include bulk
local changed, taken, marker = KEYS[1], KEYS[2], KEYS[3]
local looked, again, most = cmsgpack.unpack(ARGV[1]), ARGV[2], ARGV[3]

bulk("ZREM", taken, looked)
if again == "1" then
  redis.call("ZUNIONSTORE", changed, 2, changed, taken, "AGGREGATE", "MIN")
  redis.call("UNLINK", taken)
end
local popped = redis.call("ZPOPMIN", changed, most)
local ids, scored = {}, {}
for i = 1, #popped, 2 do
  ids[#ids + 1] = popped[i]
  scored[i], scored[i + 1] = popped[i + 1], popped[i]
end
bulk("ZADD", taken, scored)
if redis.call("EXISTS", changed) == 1 then redis.call("ZADD", marker, 0, "0") end
return ids
