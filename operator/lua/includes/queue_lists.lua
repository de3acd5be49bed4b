--[[
  Return what a review needs to know about the lists of a queue, read once per call; `queues` caches it. The
  ids are read if the lists are short. A foreign job may have the id `paused`, so the key may be no list.
]]
-- @include list_length
local function queue_lists(queues, base)
  local queue = queues[base]
  if not queue then
    queue = { wait = list_length(base .. "wait"), paused = list_length(base .. "paused"), ids = {} }
    queue.is_short = queue.wait + queue.paused <= 1000
    for _, list in ipairs(queue.is_short and { "wait", "paused" } or {}) do
      local ids = queue[list] > 0 and redis.call("LRANGE", base .. list, 0, -1) or {}
      for _, id in ipairs(ids) do queue.ids[id] = true end
    end
    local last = not queue.is_short and redis.call("LINDEX", base .. (queue.wait > 0 and "wait" or "paused"), -1)
    queue.oldest = last and tonumber(redis.call("HGET", base .. last, "timestamp") or 0) or 0
    queues[base] = queue
  end
  return queue
end
