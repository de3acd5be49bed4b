--[[
  Restore the hash of a running group from its ledger, and request to give the group up: removeAllQueueData of
  its owning queue has deleted the hash together with all jobs of that queue.

  Returns whether there was anything to restore.
]]
-- @include call_in_batches
-- @include ledgers
local function restore_hash(k, prefix, gid, queue, now)
  local statuses, name = {}, gid
  local function add(keys, status)
    for _, key in ipairs(keys) do
      local opts = redis.call("HGET", key, "opts")
      local group = opts and cjson.decode(opts).group
      -- A job without a group is foreign: another producer used our parent.
      if group or not opts then
        statuses[#statuses + 1] = key
        statuses[#statuses + 1] = status
      end
      if group then name = group.name end
    end
  end
  add(redis.call("SMEMBERS", k.open), "pending")
  add(redis.call("HKEYS", k.done), "completed")
  add(redis.call("ZRANGE", k.failed, 0, -1), "failed")
  if #statuses == 0 then return false end

  local undos = #ledgers.undos(k, prefix).list()
  redis.call("HSET", k.parent, "requested", "keys of the queue " .. queue .. " were deleted")
  redis.call("HSET", k.group, "name", name, "state", undos > 0 and "COMPENSATING" or "ACTIVE",
    "createdAt", now, "updatedAt", now, "totalJobs", #statuses / 2, "completedCount", "0", "failedCount", "0",
    "cancelledCount", "0", "compensation", "{}", "revision", "1", "undoCount", undos, "failedAt", now)
  local owner = redis.call("HMGET", k.parent, "owner", "resource")
  if owner[2] then redis.call("HSET", k.group, "owner", owner[1], "resource", owner[2]) end
  call_in_batches("HSET", k.jobs, statuses)
  -- The queue exists again, as the group does: a review would delete a group whose queue is gone.
  redis.call("HSETNX", prefix .. ":" .. queue .. ":meta", "opts.maxLenEvents", "10000")
  redis.call("ZADD", k.index, now, gid)
  redis.call("SADD", k.queues, queue)
  return true
end
