--[[
  Read what adding a job to a queue depends on, once a call; `queues` remembers it.

  Reading each key with a command of its type makes a key of another type fail here, before the
  first write, for Redis rolls nothing back. Only the place the job goes to is looked at.
]]
local function open_queue(queues, prefix, name, delay, priority)
  local queue = queues[name]
  if not queue then
    local base = prefix .. ":" .. name .. ":"
    local meta = redis.call("HMGET", base .. "meta", "paused", "concurrency", "opts.maxLenEvents")
    local concurrency = tonumber(meta[2])
    queue = {
      base = base,
      events = base .. "events",
      -- 5.x moves the list when it pauses and when it resumes, later versions merge it.
      list = base .. (meta[1] and "paused" or "wait"),
      marker = base .. "marker",
      quiet = meta[1] or (concurrency and redis.call("LLEN", base .. "active") >= concurrency),
      max_events = string.match(meta[3] or "", "^%d+$"),
      head = {},
      tail = {},
    }
    redis.call("ZCARD", queue.marker)
    redis.call("XLEN", queue.events)
    queues[name] = queue
  end
  if delay then
    queue.delayed = queue.delayed or redis.call("ZCARD", queue.base .. "delayed")
  elseif priority then
    queue.prioritized = queue.prioritized or redis.call("ZCARD", queue.base .. "prioritized")
    queue.pc = queue.pc or redis.call("GET", queue.base .. "pc") or "0"
    if not string.match(queue.pc, "^%d+$") then error("NOTANUMBER " .. queue.base .. "pc", 0) end
  else
    queue.waiting = queue.waiting or redis.call("LLEN", queue.list)
  end
  return queue
end
