--[[
  Take jobs out of a ledger that their queues have lost, so that the next settle finds them missing. `ledger`
  describes the members or the undos, see ledgers.lua.

  A job is lost if its hash was deleted, or if it is in no list: 5.x destroys a list when it pauses or resumes a
  queue that a later version paused. A short list is read once per call. A longer one is searched only within
  `budget.entries`, and only for a member that is older than the job at its end, which workers take next.

  Returns whether a job was lost, or a foreign job is among the open ones.
]]
-- @include split_job_key
-- @include active_ids
-- @include has_started
-- @include queue_lists
-- @include job_keys
local function is_listed(queues, base, id, timestamp, budget)
  local queue = queue_lists(queues, base, budget)
  if queue.ids[id] then return true end
  for _, set in ipairs({ "delayed", "prioritized", "completed", "failed" }) do
    if redis.call("ZSCORE", base .. set, id) then return true end
  end
  if queue.has_parents and redis.call("ZSCORE", base .. "waiting-children", id) then return true end
  if queue.is_read then return false end
  if (not queue.is_short and timestamp >= queue.oldest) or queue.length > budget.entries then return true end
  budget.entries = budget.entries - queue.length
  return (queue.wait > 0 and redis.call("LPOS", base .. "wait", id))
    or (queue.paused > 0 and redis.call("LPOS", base .. "paused", id))
end

local function take_out_missing(ledger, prefix, queues, seen, budget)
  local lost = false
  for _, key in ipairs(redis.call("SMEMBERS", ledger.open)) do
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    local job = redis.call("HMGET", key, "timestamp", "parentKey")
    if not job[1] or job[2] ~= ledger.hash or redis.call("HEXISTS", ledger.members, key) == 0 then
      lost = true
    elseif not active_ids(seen, prefix, queue)[id] and not is_listed(queues, base, id, tonumber(job[1]), budget) then
      if has_started(key) then redis.call("HSET", ledger.hash, "started:" .. key, 1) end
      redis.call("SREM", ledger.open, key)
      redis.call("UNLINK", job_keys(key))
      lost = true
    end
    budget.members = budget.members - 1
  end
  return lost
end
