--[[
  Read what adding a job to a queue depends on, once per call; `queues` caches it.

  Each key is read with a command of its type, so a key of another type fails here, before the first write:
  Redis does not roll back. Only the keys that the job will change are read.
]]
local function open_queue(queues, prefix, name, delay, priority)
  local queue = queues[name]
  if not queue then
    local base = prefix .. ":" .. name .. ":"
    local meta = redis.call("HMGET", base .. "meta", "paused", "concurrency", "opts.maxLenEvents", "groups")
    local concurrency = tonumber(meta[2])
    queue = {
      base = base,
      events = base .. "events",
      list = base .. "wait",
      marker = base .. "marker",
      is_paused = meta[1],
      quiet = meta[1] or (concurrency and redis.call("LLEN", base .. "active") >= concurrency),
      max_events = string.match(meta[3] or "", "^%d+$"),
      owns_groups = meta[4],
      head = {},
      tail = {},
    }
    redis.call("ZCARD", queue.marker)
    redis.call("XLEN", queue.events)
    queues[name] = queue
  end
  if delay then
    queue.delayed = queue.delayed or redis.call("ZCARD", queue.base .. "delayed")
  elseif priority or queue.is_paused then
    queue.prioritized = queue.prioritized or redis.call("ZCARD", queue.base .. "prioritized")
    queue.pc = queue.pc or redis.call("GET", queue.base .. "pc") or "0"
    if not string.match(queue.pc, "^%d+$") then error("NOTANUMBER " .. queue.base .. "pc", 0) end
  else
    queue.waiting = queue.waiting or redis.call("LLEN", queue.list)
  end
  return queue
end
