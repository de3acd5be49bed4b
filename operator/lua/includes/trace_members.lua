--[[
  Record what the ledger does not show: that a member completed before somebody ran it again, and that a missing
  member may have started. A missing member that completed returns to the ledger.

  A member has a return value from its creation on, and only retrying a completed job deletes it. So a member
  without a value has completed. The value itself is left only in the event stream of its queue.
]]
-- @include split_job_key
-- @include read_history
local function trace_members(k, prefix, missing, budget)
  local sought, is_missing = {}, {}
  local function seek(key)
    local queue = split_job_key(prefix, key)
    sought[queue] = sought[queue] or {}
    table.insert(sought[queue], key)
  end
  local function seek_if_completed(key)
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    if job[1] == k.parent and not job[2] and redis.call("HEXISTS", k.parent, "completed:" .. key) == 0 then seek(key) end
  end
  local function restore(key, value)
    redis.call("ZREM", k.failed, key)
    redis.call("HDEL", k.parent, "removed:" .. key)
    redis.call("HSET", k.done, key, value)
  end

  for _, key in ipairs(missing) do
    is_missing[key] = true
    local value = redis.call("HGET", k.parent, "completed:" .. key)
    if value then restore(key, value) else seek(key) end
  end
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do seek_if_completed(key) end
  for _, key in ipairs(redis.call("ZRANGE", k.failed, 0, -1)) do
    if not is_missing[key] then seek_if_completed(key) end
  end
  for queue, keys in pairs(sought) do
    local base, ids = prefix .. ":" .. queue .. ":", {}
    for n, key in ipairs(keys) do ids[n] = string.sub(key, #base + 1) end
    local history = read_history(base, ids, budget)
    for n, key in ipairs(keys) do
      local job = history[ids[n]]
      if not is_missing[key] then
        redis.call("HSET", k.parent, "completed:" .. key, job.value or "null")
      elseif job.value then
        restore(key, job.value)
      elseif job.started or not job.added then
        redis.call("HSET", k.parent, "started:" .. key, 1)
      end
    end
  end
end
