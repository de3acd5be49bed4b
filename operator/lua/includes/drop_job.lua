--[[
  Take a job that is not at work out of its queue, with all its keys.

  Returns where it was, and what that cost in list entries walked over; nil if it was nowhere.
]]
local function drop_job(prefix, queue, id)
  local base = prefix .. ":" .. queue .. ":"
  local key = base .. id
  local was
  local cost = 0
  if redis.call("ZREM", base .. "delayed", id) == 1 then
    was = "delayed"
  elseif redis.call("ZREM", base .. "prioritized", id) == 1 then
    was = "prioritized"
  else
    for _, list in ipairs({ "wait", "paused" }) do
      if not was then
        cost = cost + redis.call("LLEN", base .. list)
        if redis.call("LREM", base .. list, 1, id) == 1 then was = list end
      end
    end
  end
  if was then
    redis.call("UNLINK", key, key .. ":logs")
    redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", was)
  end
  return was, cost
end
