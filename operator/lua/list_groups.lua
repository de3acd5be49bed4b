--[[
  List the groups in a state, the oldest first. A group on the wake-up list is in no state until it is settled.

  KEYS[1] parked  zset of the parked groups
  ARGV[1] state   the state
  ARGV[2] limit   how many groups to list

  Returns  the ids of the groups
]]
-- @include state_scores
local parked, state, limit = KEYS[1], ARGV[1], ARGV[2]

local scores, above = state_scores()
local from, to = string.format("%.0f", scores[state]), string.format("(%.0f", scores[state] + above)
return redis.call("ZRANGEBYSCORE", parked, from, to, "LIMIT", 0, limit)
