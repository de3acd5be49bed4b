--[[
  Move jobs to `wait` in a queue that is not paused, at most 1,000 of each kind per call, and no more than
  `budget.released`: those that were added while it was paused (see add_job), and those that a client left in
  `paused`. The Python client moves 7,000 of these when it resumes a queue that 5.x paused. They join the list at
  the end to which producers add, the oldest ones first.
]]
-- @include list_length
local function release_jobs(base, budget)
  local most = math.min(1000, budget.released)
  if most <= 0 then return end
  local held = redis.call("ZRANGEBYSCORE", base .. "prioritized", "-inf", "(4294967296", "LIMIT", 0, most)
  local left = list_length(base .. "paused") > 0 and redis.call("LRANGE", base .. "paused", -most, -1) or {}
  if (#held == 0 and #left == 0) or redis.call("HEXISTS", base .. "meta", "paused") == 1 then return end
  budget.released = budget.released - #held - #left
  if #left > 0 then
    local oldest_first = {}
    for i = #left, 1, -1 do oldest_first[#oldest_first + 1] = left[i] end
    redis.call("LPUSH", base .. "wait", unpack(oldest_first))
    redis.call("LTRIM", base .. "paused", 0, -#left - 1)
  end
  if #held > 0 then
    redis.call("LPUSH", base .. "wait", unpack(held))
    redis.call("ZREM", base .. "prioritized", unpack(held))
  end
  redis.call("ZADD", base .. "marker", "0", "0")
end
