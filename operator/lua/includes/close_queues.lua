--[[
  Put the jobs added to these queues on their lists and wake the workers, once a queue.
]]
-- @include bulk
local function close_queues(queues)
  for _, queue in pairs(queues) do
    bulk("LPUSH", queue.list, queue.head)
    bulk("RPUSH", queue.list, queue.tail)
    if queue.runnable and not queue.quiet then redis.call("ZADD", queue.marker, "0", "0") end
    if queue.due then
      local first = redis.call("ZRANGE", queue.base .. "delayed", 0, 0, "WITHSCORES")
      redis.call("ZADD", queue.marker, tonumber(first[2]) / 4096, "1")
    end
  end
end
