--[[
  Move jobs from `paused` to `wait` in a queue that is not paused, at most 1,000 per call. A client that resumes
  a queue which 5.x paused may leave jobs behind: the Python client moves 7,000.
]]
-- @include list_length
local function release_paused(base)
  if list_length(base .. "paused") == 0 or redis.call("HEXISTS", base .. "meta", "paused") == 1 then return end
  local ids = redis.call("LRANGE", base .. "paused", 0, 999)
  redis.call("RPUSH", base .. "wait", unpack(ids))
  redis.call("LTRIM", base .. "paused", #ids, -1)
  redis.call("ZADD", base .. "marker", "0", "0")
end
