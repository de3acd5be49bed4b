--[[
  Restore the pseudo parents of a group, and what their ledgers recorded, from the group's hash and its jobs.

  A stock worker on the pseudo queue, or a person who removes a job there, deletes them. A member whose hash is
  gone, too, is left out: the harvest finds it missing.
]]
-- @include names
-- @include split_job_key
local function restore_parent(k, prefix, queue)
  local function restore_entry(key, open, done, failed)
    local job_queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. job_queue .. ":"
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    local failed_at = redis.call("ZSCORE", base .. "failed", id)
    if job[1] == k.sealed or redis.call("ZSCORE", base .. "completed", id) then
      redis.call("HSETNX", done, key, job[2] or "null")
    elseif failed_at then
      redis.call("ZADD", failed, failed_at, key)
    elseif job[1] then
      redis.call("SADD", open, key)
    end
  end

  local owner = redis.call("HMGET", k.group, "owner", "resource")
  redis.call("HSET", k.parent, "queue", queue, "owner", owner[1] or names.headless)
  if owner[2] then redis.call("HSET", k.parent, "resource", owner[2]) end
  local statuses = redis.call("HGETALL", k.jobs)
  local undos_lost = redis.call("HEXISTS", k.group, "undoCount") == 1 and redis.call("EXISTS", k.undo) == 0
  for i = 1, #statuses, 2 do
    local key = statuses[i]
    if statuses[i + 1] ~= "cancelled" then restore_entry(key, k.open, k.done, k.failed) end
    if undos_lost then
      local job_queue, id = split_job_key(prefix, key)
      local undo_key = names.job_key(prefix, names.undo_queue(job_queue), names.undo_id(id))
      if redis.call("EXISTS", undo_key) == 1 then
        redis.call("HSET", k.undo, undo_key, key)
        restore_entry(undo_key, k.undo_open, k.undo_done, k.undo_failed)
      end
    end
  end
end
