--[[
  Return the name of this data set.

  The first caller sets the name and later callers read it. A Redis that lost its data has lost the name,
  too, and gets a new one. So clients can distinguish lost data from data that was never written.

  KEYS[1] incarnation  string, the name
  ARGV[1] candidate    the name to set if there is none

  Returns  the name
]]
local incarnation, candidate = KEYS[1], ARGV[1]

redis.call("SET", incarnation, candidate, "NX")
return redis.call("GET", incarnation)
