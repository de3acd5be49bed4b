--[[
  Take members out of the ledger that their queues have lost, so that the next settle finds them missing.

  A job is lost if its hash was deleted, or if it is in no list: 5.x destroys a list when it pauses or resumes a
  queue that a later version paused. A list of up to 1,000 entries is read once per call. A longer one is
  searched only for a member that is older than the job at its end, which workers take next, and only within
  `budget.entries`.

  Returns whether a member was lost, or a foreign job is among the open ones.
]]
-- @include split_job_key
-- @include active_ids
-- @include has_started
-- @include job_keys
local function open_lists(queues, base)
  local queue = queues[base]
  if not queue then
    queue = { wait = redis.call("LLEN", base .. "wait"), paused = redis.call("LLEN", base .. "paused"), ids = {} }
    queue.is_short = queue.wait + queue.paused <= 1000
    for _, list in ipairs(queue.is_short and { "wait", "paused" } or {}) do
      for _, id in ipairs(redis.call("LRANGE", base .. list, 0, -1)) do queue.ids[id] = true end
    end
    local last = not queue.is_short and redis.call("LINDEX", base .. (queue.wait > 0 and "wait" or "paused"), -1)
    queue.oldest = last and tonumber(redis.call("HGET", base .. last, "timestamp") or 0) or 0
    queues[base] = queue
  end
  return queue
end

local function is_listed(queues, base, id, timestamp, budget)
  local queue = open_lists(queues, base)
  if queue.ids[id] then return true end
  for _, set in ipairs({ "delayed", "prioritized", "completed", "failed", "waiting-children" }) do
    if redis.call("ZSCORE", base .. set, id) then return true end
  end
  if queue.is_short then return false end
  if timestamp >= queue.oldest or queue.wait + queue.paused > budget.entries then return true end
  budget.entries = budget.entries - queue.wait - queue.paused
  return redis.call("LPOS", base .. "wait", id) or redis.call("LPOS", base .. "paused", id)
end

local function take_out_missing(k, prefix, queues, seen, budget)
  local lost = false
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    local timestamp = redis.call("HGET", key, "timestamp")
    if not timestamp or redis.call("HEXISTS", k.jobs, key) == 0 then
      lost = true
    elseif not active_ids(seen, prefix, queue)[id] and not is_listed(queues, base, id, tonumber(timestamp), budget) then
      if has_started(key) then redis.call("HSET", k.parent, "started:" .. key, 1) end
      redis.call("SREM", k.open, key)
      redis.call("UNLINK", job_keys(key))
      lost = true
    end
    budget.members = budget.members - 1
  end
  return lost
end
