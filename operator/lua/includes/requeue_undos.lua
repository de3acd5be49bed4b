--[[
  Add failed undos whose retry was accepted to their queues again, as many as the budget allows, with fresh attempts: a
  retry of stock BullMQ with resetAttemptsMade and resetAttemptsStarted leaves the same. An undo whose hash is gone is
  made again from its mapping, under the same id. The hash of undos has a field `retry:{key}` for each of them.

  Returns how many are left for another call.
]]
-- @include add_job
-- @include close_queues
-- @include family
-- @include last_values
-- @include names
-- @include open_queue
-- @include outcome_of
-- @include push_job
-- @include split_job_key
-- @include undo_job
-- @include undo_mappings
local function requeue_undos(k, prefix, gid, now, budget)
  local queues, left, mapping_of = {}, 0, nil
  local parent = family(k, names.undo_id(gid))

  -- Return whether the undo is in its queue again.
  local function requeue(key, member)
    local name, id = split_job_key(prefix, key)
    local job = redis.call("HMGET", key, "parentKey", "finishedOn")
    if job[1] == k.undo then
      local queue = open_queue(queues, prefix, name)
      -- Somebody may have retried it meanwhile. The bulk retry of 5.x does not change the ledger; a harvest does.
      if not job[2] or redis.call("ZSCORE", queue.base .. "completed", id) then return false end
      redis.call("ZREM", queue.base .. "failed", id)
      redis.call("HDEL", key, "finishedOn", "processedOn", "failedReason", "atm", "ats")
      push_job(queue, { id = id }, "failed")
      return true
    end
    if job[1] or redis.call("EXISTS", key) == 1 then return false end
    mapping_of = mapping_of or select(2, undo_mappings.read(k))
    local mapping = mapping_of(member)
    if mapping.is_lost then return false end
    local _, member_id = split_job_key(prefix, member)
    local values = last_values(k, prefix, { [member] = outcome_of(k, member) }, budget)
    local undo = undo_job(gid, member_id, mapping, values[member])
    budget.bytes = budget.bytes - #undo.data
    add_job(open_queue(queues, prefix, name), undo, now, k.undo, parent, {})
    return true
  end

  local fields = redis.call("HGETALL", k.undo)
  for i = 1, #fields, 2 do
    local key = string.match(fields[i], "^retry:(.*)$")
    if key and (budget.undos <= 0 or budget.bytes <= 0) then
      left = left + 1
    elseif key then
      redis.call("HDEL", k.undo, fields[i])
      if redis.call("ZSCORE", k.undo_failed, key) and requeue(key, redis.call("HGET", k.undo, key)) then
        redis.call("ZREM", k.undo_failed, key)
        redis.call("SADD", k.undo_open, key)
        redis.call("HDEL", k.undo, "removed:" .. key)
        budget.undos = budget.undos - 1
      end
    end
  end
  close_queues(queues)
  if left > 0 then redis.call("HSET", k.group, "retrying", left) else redis.call("HDEL", k.group, "retrying") end
  return left
end
