--[[
  Move jobs to `wait` in a queue that is not paused, at most 2,000 per call: those that were added while it was
  paused (see add_job), and those that a client left in `paused`. The Python client moves 7,000 of these when it
  resumes a queue that 5.x paused. The oldest jobs are moved last, to the end from which workers take.
]]
-- @include list_length
local function release_jobs(base)
  local held = redis.call("ZREVRANGEBYSCORE", base .. "prioritized", "(4294967296", "-inf", "LIMIT", 0, 1000)
  local left = list_length(base .. "paused") > 0 and redis.call("LRANGE", base .. "paused", 0, 999) or {}
  if (#held == 0 and #left == 0) or redis.call("HEXISTS", base .. "meta", "paused") == 1 then return end
  if #left > 0 then
    redis.call("RPUSH", base .. "wait", unpack(left))
    redis.call("LTRIM", base .. "paused", #left, -1)
  end
  if #held > 0 then
    redis.call("RPUSH", base .. "wait", unpack(held))
    redis.call("ZREM", base .. "prioritized", unpack(held))
  end
  redis.call("ZADD", base .. "marker", "0", "0")
end
