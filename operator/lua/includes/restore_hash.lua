--[[
  Restore the hash of a running group from its ledger, and request to give the group up: removeAllQueueData of
  its owning queue has deleted the hash together with all jobs of that queue. Members that the ledger does not
  show were cancelled or removed; they count as cancelled. They are listed if they may still need an undo.

  Returns whether there was anything to restore.
]]
-- @include call_in_batches
-- @include group_option
-- @include ledgers
-- @include names
-- @include split_job_key
-- @include undo_mappings
local function restore_hash(k, prefix, gid, queue, now)
  local statuses, listed, name = {}, {}, gid
  local function add(keys, status)
    for _, key in ipairs(keys) do
      local opts = redis.call("HGET", key, "opts")
      local group = opts and group_option(opts)
      local _, id = split_job_key(prefix, key)
      -- A foreign job, because another producer used our parent, or added a job with the id of a member.
      if group or not opts or names.group_of_job(id) == gid then
        statuses[#statuses + 1] = key
        statuses[#statuses + 1] = status
        listed[key] = true
      end
      if group and group.id == gid then name = group.name or gid end
    end
  end
  add(redis.call("SMEMBERS", k.open), "pending")
  add(redis.call("HKEYS", k.done), "completed")
  add(redis.call("ZRANGE", k.failed, 0, -1), "failed")
  local undos = ledgers.undos(k, prefix).list()
  if #statuses == 0 and #undos == 0 then return false end

  local known = #statuses / 2
  local stored = redis.call("HMGET", k.parent, "members", "givenUp", "owner", "resource", "ttlSeconds", "format",
    "retries", "attempt")
  local total = stored[1] and #stored[1] or known
  -- A group that was given up stays so, even if the ledger only shows completed members.
  local state = (#undos > 0 or stored[2]) and "COMPENSATING" or "ACTIVE"
  redis.call("HSET", k.parent, "requested", "keys of the queue " .. queue .. " were deleted")
  redis.call("HSET", k.group, "name", name, "state", state,
    "createdAt", now, "updatedAt", now, "totalJobs", total, "completedCount", "0", "failedCount", "0",
    "cancelledCount", total - known, "compensation", "{}", "undoCount", #undos, "failedAt", now)
  if stored[3] then redis.call("HSET", k.group, "owner", stored[3]) end
  if stored[4] then redis.call("HSET", k.group, "resource", stored[4]) end
  if stored[5] then redis.call("HSET", k.group, "ttlSeconds", stored[5]) end
  if redis.call("EXISTS", k.records) == 1 then redis.call("HSET", k.group, "recorded", 1) end
  if stored[6] then redis.call("HSET", k.group, "format", stored[6]) end
  if stored[7] then redis.call("HSET", k.group, "retries", stored[7], "attempt", stored[8]) end
  local resolved = redis.call("HLEN", k.resolved)
  if resolved > 0 then redis.call("HSET", k.group, "resolvedCount", resolved) end
  if redis.call("EXISTS", k.on_end) == 1 then redis.call("HSET", k.group, "onEnd", 1) end
  for n, key in ipairs(undos) do undos[n] = redis.call("HGET", k.undo, key) end
  undo_mappings.restore(k, undos)
  for _, field in ipairs(redis.call("HKEYS", k.parent)) do
    local key = string.match(field, "^completed:(.*)$") or string.match(field, "^started:(.*)$")
    if key and not listed[key] then
      statuses[#statuses + 1] = key
      statuses[#statuses + 1] = "cancelled"
    end
  end
  call_in_batches("HSET", k.jobs, statuses)
  -- The queue exists again, as the group does: a review would delete a group whose queue is gone.
  redis.call("HSETNX", prefix .. ":" .. queue .. ":meta", "opts.maxLenEvents", "10000")
  redis.call("HSET", prefix .. ":" .. queue .. ":meta", "groups", 1)
  redis.call("ZADD", k.index, now, gid)
  redis.call("SADD", k.queues, queue)
  return true
end
