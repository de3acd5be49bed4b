--[[
  Put failed undos back into the failed set of their queue. removeOrphanedJobs of BullMQ 6 deletes that set,
  because the keys of the queue of undos look like those of a job in the queue of the members.
]]
-- @include split_job_key
local function restore_failed_undos(k, prefix)
  for _, key in ipairs(redis.call("ZRANGE", k.undo_failed, 0, -1)) do
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    local finished = redis.call("HGET", key, "finishedOn")
    if finished and not redis.call("ZSCORE", base .. "failed", id) and not redis.call("ZSCORE", base .. "completed", id) then
      redis.call("ZADD", base .. "failed", finished, id)
    end
  end
end
