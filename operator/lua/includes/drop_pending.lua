--[[
  Take the open members that are not at work out of their queues, as many as the budget allows, and
  those whose worker is gone for longer than the grace.

  Returns how many open members are left, and whether some of them could be dropped in another call.
]]
-- @include place_of
-- @include active_ids
-- @include drop_job
local function drop_pending(k, prefix, now, grace, budget)
  local seen, left, more = {}, 0, false
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do
    local queue, id = place_of(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    if active_ids(seen, prefix, queue)[id] then
      local since = redis.call("HGET", k.parent, "unlocked:" .. key)
      if redis.call("EXISTS", key .. ":lock") == 1 then
        if since then redis.call("HDEL", k.parent, "unlocked:" .. key) end
        left = left + 1
      elseif since and now - tonumber(since) >= grace then
        -- Nobody will ever finish it. What it did is unknown, so it has failed, after a start.
        redis.call("LREM", base .. "active", 1, id)
        redis.call("SREM", base .. "stalled", id)
        redis.call("UNLINK", key, key .. ":logs")
        redis.call("SREM", k.open, key)
        redis.call("ZADD", k.failed, now, key)
        redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", "active")
      else
        if not since then redis.call("HSET", k.parent, "unlocked:" .. key, now) end
        left = left + 1
      end
    elseif redis.call("ZSCORE", base .. "waiting-children", id) then
      left = left + 1
    elseif budget.jobs <= 0 or budget.entries <= 0 then
      left, more = left + 1, true
    else
      local starts = tonumber(redis.call("HGET", key, "ats") or 0)
      local was, cost = drop_job(prefix, queue, id)
      if not was then redis.call("UNLINK", key) end
      if starts > 0 then redis.call("HSET", k.parent, "started:" .. key, 1) end
      redis.call("SREM", k.open, key)
      redis.call("HSET", k.jobs, key, "cancelled")
      redis.call("HINCRBY", k.group, "cancelledCount", 1)
      budget.jobs, budget.entries = budget.jobs - 1, budget.entries - cost
    end
  end
  return left, more
end
