--[[
  Return what a review needs to know about the lists of a queue, read once per call; `queues` caches it. The
  ids are read if the lists have at most `budget.short` entries, and only as long as `budget.ids` lasts. A foreign
  job may have the id `paused` or `waiting-children`, so these keys may have another type.
]]
-- @include list_length
local function queue_lists(queues, base, budget)
  local queue = queues[base]
  if not queue then
    queue = { wait = list_length(base .. "wait"), paused = list_length(base .. "paused"), ids = {} }
    queue.has_parents = redis.call("TYPE", base .. "waiting-children").ok == "zset"
    queue.length = queue.wait + queue.paused
    queue.is_short = queue.length <= budget.short
    queue.is_read = queue.is_short and budget.ids > 0
    if queue.is_read then budget.ids = budget.ids - queue.length end
    for _, list in ipairs(queue.is_read and { "wait", "paused" } or {}) do
      local ids = queue[list] > 0 and redis.call("LRANGE", base .. list, 0, -1) or {}
      for _, id in ipairs(ids) do queue.ids[id] = true end
    end
    local last = not queue.is_short and redis.call("LINDEX", base .. (queue.wait > 0 and "wait" or "paused"), -1)
    queue.oldest = last and tonumber(redis.call("HGET", base .. last, "timestamp") or 0) or 0
    queues[base] = queue
  end
  return queue
end
