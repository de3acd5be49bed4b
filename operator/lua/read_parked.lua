--[[
  Return the parked groups that a resync settles: those that have not ended, and the failed ones if asked.

  All at once: settling a group parks it with another score, so pages would miss some.

  KEYS[1] parked  zset of the parked groups
  ARGV[1] failed  1 to return groups that failed, too; a completed group never changes

  Returns  ids of groups and of the pseudo parents of their undos
]]
-- @include state_scores
local parked, failed = KEYS[1], ARGV[1] == "1"

local scores = state_scores()
local limit = failed and scores.COMPLETED or scores.FAILED
return redis.call("ZRANGEBYSCORE", parked, "-inf", string.format("(%.0f", limit))
