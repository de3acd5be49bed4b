--[[
  Read what adding to a queue depends on, once a call; `queues` remembers it.

  Reading each key with a command of its type makes a key of another type fail here, before the
  first write, for Redis rolls nothing back.
]]
local function open_queue(queues, prefix, name)
  local queue = queues[name]
  if not queue then
    local base = prefix .. ":" .. name .. ":"
    local meta = redis.call("HMGET", base .. "meta", "paused", "concurrency", "opts.maxLenEvents")
    local concurrency = tonumber(meta[2])
    redis.call("LLEN", base .. "wait")
    redis.call("LLEN", base .. "paused")
    redis.call("ZCARD", base .. "marker")
    redis.call("ZCARD", base .. "delayed")
    redis.call("ZCARD", base .. "prioritized")
    redis.call("XLEN", base .. "events")
    queue = {
      base = base,
      events = base .. "events",
      -- 5.x moves the list when it pauses and when it resumes, later versions merge it.
      list = base .. (meta[1] and "paused" or "wait"),
      marker = base .. "marker",
      quiet = meta[1] or (concurrency and redis.call("LLEN", base .. "active") >= concurrency),
      max_events = meta[3],
    }
    queues[name] = queue
  end
  return queue
end
