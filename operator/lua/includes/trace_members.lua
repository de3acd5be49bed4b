--[[
  Record what the ledger does not show: that a member completed before somebody ran it again, and that a missing
  member may have started. A missing member that completed returns to the ledger, as does one that failed, was
  retried in bulk by 5.x, completed and was removed: 5.x does not record its completion.

  A member has a return value from its creation on, and only retrying a completed job deletes it. So a member
  without a value has completed, unless another producer added a copy of it. The value itself is left only in the
  event stream of its queue.
]]
-- @include read_history
local function trace_members(k, prefix, state, missing, budget)
  local sought, is_missing, is_removed = {}, {}, {}
  local function restore(key, value)
    redis.call("ZREM", k.failed, key)
    redis.call("HDEL", k.parent, "removed:" .. key)
    redis.call("HSET", k.done, key, value)
  end

  for _, key in ipairs(missing) do
    is_missing[key] = true
    local value = redis.call("HGET", k.parent, "completed:" .. key)
    if value then restore(key, value) else sought[#sought + 1] = key end
  end
  local function seek(key, has_failed)
    local job = redis.call("HMGET", key, "parentKey", "returnvalue")
    local is_gone = job[1] ~= k.parent and job[1] ~= k.sealed
    is_removed[key] = has_failed and is_gone and state == "ACTIVE"
      and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0
    if (is_removed[key] or (job[1] == k.parent and not job[2]))
      and redis.call("HEXISTS", k.parent, "completed:" .. key) == 0 then
      sought[#sought + 1] = key
    end
  end
  for _, key in ipairs(redis.call("SMEMBERS", k.open)) do seek(key, false) end
  for _, key in ipairs(redis.call("ZRANGE", k.failed, 0, -1)) do
    if not is_missing[key] then seek(key, true) end
  end

  for key, job in pairs(read_history(prefix, sought, budget)) do
    if is_missing[key] then
      if job.value then
        restore(key, job.value)
      elseif job.started or not job.added then
        redis.call("HSET", k.parent, "started:" .. key, 1)
      end
    elseif job.value and is_removed[key] and job.last == "completed" then
      restore(key, job.value)
    elseif job.value or not (is_removed[key] or job.replaced) then
      redis.call("HSET", k.parent, "completed:" .. key, job.value or "null")
    elseif not is_removed[key] then
      -- The copy takes the place of the member.
      redis.call("HSET", key, "returnvalue", "null")
    end
  end
end
