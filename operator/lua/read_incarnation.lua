--[[
  Tell one life of this Redis from another.

  The first caller names the epoch and every later one reads that name. A Redis that lost its data
  has lost the epoch too, and the next caller names a new one: so nobody mistakes an emptied Redis
  for one in which nothing had happened yet.

  KEYS[1] epoch      string, the epoch's name
  ARGV[1] candidate  the name to give, if there is none yet

  Returns  the epoch's name
]]
local epoch, candidate = KEYS[1], ARGV[1]

redis.call("SET", epoch, candidate, "NX")
return redis.call("GET", epoch)
