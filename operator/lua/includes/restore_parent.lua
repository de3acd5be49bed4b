--[[
  Restore the pseudo parent of a group, and what its ledger recorded, from the group's hash and its jobs.

  A stock worker on the pseudo queue, or a person who removes a job there, deletes them. A member whose hash is
  gone, too, is left out unless the group recorded that it completed: the harvest finds it missing.
]]
-- @include as_job
-- @include belongs
-- @include has_started
-- @include restore_entry
-- @include saga
-- @include undo_mappings
local function restore_parent(k, prefix, gid, queue)
  local stored = redis.call("HMGET", k.group, "owner", "resource", "format", "totalJobs", "state", "ttlSeconds",
    "name", "createdAt")
  redis.call("HSET", k.parent, as_job(stored[7] or gid, stored[8] or "0", "queue", queue))
  if stored[1] then redis.call("HSET", k.parent, "owner", stored[1]) end
  if stored[2] then redis.call("HSET", k.parent, "resource", stored[2]) end
  if stored[3] then redis.call("HSET", k.parent, "format", stored[3]) end
  if saga.has_ended(stored[5]) then redis.call("HSET", k.parent, "ended", 1) end
  if stored[6] then redis.call("HSET", k.parent, "ttlSeconds", stored[6]) end
  undo_mappings.restore_members(k, tonumber(stored[4]))
  local statuses = redis.call("HGETALL", k.jobs)
  for i = 1, #statuses, 2 do
    local key, status = statuses[i], statuses[i + 1]
    if status ~= "cancelled" then
      restore_entry(prefix, key, k.parent, k.sealed, k.open, k.done, k.failed)
      -- Whether it started before or after its group was given up was recorded only in the lost parent.
      if belongs(k, gid, key) and has_started(key) then redis.call("HSET", k.parent, "started:" .. key, 1) end
    end
    if status == "completed" then
      redis.call("SREM", k.open, key)
      redis.call("ZREM", k.failed, key)
      redis.call("HSETNX", k.done, key, "null")
    end
  end
end
