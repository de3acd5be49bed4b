--[[
  Remove the open members that are not active from their queues, as many as the budget allows, and the
  active ones that have been without a worker for longer than the grace.

  Returns the number of open members left, and whether another call could drop some of them.
]]
-- @include split_job_key
-- @include active_ids
-- @include call_in_batches
-- @include drop_jobs
local function drop_pending(k, prefix, now, grace, budget)
  local seen, parents, pending, more = {}, {}, {}, false
  local open = redis.call("SMEMBERS", k.open)
  for _, key in ipairs(open) do
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    if parents[queue] == nil then parents[queue] = redis.call("ZCARD", base .. "waiting-children") > 0 end
    if active_ids(seen, prefix, queue)[id] then
      local since = redis.call("HGET", k.parent, "unlocked:" .. key)
      if redis.call("EXISTS", key .. ":lock") == 1 then
        if since then redis.call("HDEL", k.parent, "unlocked:" .. key) end
      elseif since and now - tonumber(since) >= grace then
        -- No worker will finish it. It may have had effects, so it counts as started and failed.
        redis.call("LREM", base .. "active", 1, id)
        redis.call("SREM", base .. "stalled", id)
        redis.call("UNLINK", key, key .. ":logs")
        redis.call("SREM", k.open, key)
        redis.call("ZADD", k.failed, now, key)
        redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", "active")
      elseif not since then
        redis.call("HSET", k.parent, "unlocked:" .. key, now)
      end
    elseif budget.drops <= 0 then
      more = true
      break
    elseif not (parents[queue] and redis.call("ZSCORE", base .. "waiting-children", id)) then
      pending[base] = pending[base] or {}
      table.insert(pending[base], id)
      budget.drops = budget.drops - 1
    end
  end

  local cancelled, statuses, unneeded = {}, {}, {}
  for base, ids in pairs(pending) do
    local starts = {}
    for _, id in ipairs(ids) do starts[id] = tonumber(redis.call("HGET", base .. id, "ats") or 0) end
    local was, known = drop_jobs(base, ids, #open, budget)
    more = more or not known
    for _, id in ipairs(ids) do
      local key = base .. id
      if was[id] or known then
        if not was[id] then redis.call("UNLINK", key) end
        cancelled[#cancelled + 1] = key
        statuses[#statuses + 1] = key
        statuses[#statuses + 1] = "cancelled"
        if starts[id] > 0 then
          redis.call("HSET", k.parent, "started:" .. key, 1)
        else
          unneeded[#unneeded + 1] = key
        end
      end
    end
  end
  call_in_batches("SREM", k.open, cancelled)
  call_in_batches("HSET", k.jobs, statuses)
  call_in_batches("HDEL", k.templates, unneeded)
  redis.call("HINCRBY", k.group, "cancelledCount", #cancelled)
  return redis.call("SCARD", k.open), more
end
