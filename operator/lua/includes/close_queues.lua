--[[
  Push the jobs that were added to these queues and wake the workers, once per queue.
]]
-- @include call_in_batches
local function close_queues(queues)
  for _, queue in pairs(queues) do
    call_in_batches("LPUSH", queue.list, queue.head)
    call_in_batches("RPUSH", queue.list, queue.tail)
    if queue.runnable and not queue.quiet then redis.call("ZADD", queue.marker, "0", "0") end
    if queue.due then
      local first = redis.call("ZRANGE", queue.base .. "delayed", 0, 0, "WITHSCORES")
      redis.call("ZADD", queue.marker, tonumber(first[2]) / 4096, "1")
    end
  end
end
