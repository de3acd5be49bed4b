--[[
  Add failed undos whose retry was accepted to their queues again, as many as the budget allows, with fresh attempts: a
  retry of stock BullMQ with resetAttemptsMade and resetAttemptsStarted leaves the same. An undo whose hash is gone is
  made again from its mapping, under the same id. The hash of undos has a field `retry:{key}` for each of them.

  Returns how many are left for another call.
]]
-- @include active_ids
-- @include add_job
-- @include close_queues
-- @include family
-- @include last_values
-- @include names
-- @include open_queue
-- @include outcome_of
-- @include push_job
-- @include split_job_key
-- @include take_jobs
-- @include undo_job
-- @include undo_mappings
local function requeue_undos(k, prefix, gid, now, budget)
  local queues, left, mapping_of, active = {}, 0, nil, {}
  local parent = family(k, names.undo_id(gid))

  -- Return a function that adds an undo to its queue again; it returns why it could not. Return nil if the undo is not
  -- to be added. What fails, because a key has another type, fails here: before the first write.
  local function prepare(key, member)
    local name, id = split_job_key(prefix, key)
    local job = redis.call("HMGET", key, "parentKey", "finishedOn")
    if job[1] == k.undo then
      local queue = open_queue(queues, prefix, name)
      redis.call("ZSCORE", queue.base .. "failed", id)
      -- Somebody may have retried it meanwhile. The bulk retry of 5.x does not change the ledger; a harvest does.
      if not job[2] or redis.call("ZSCORE", queue.base .. "completed", id) then return nil end
      return function()
        redis.call("ZREM", queue.base .. "failed", id)
        redis.call("HDEL", key, "finishedOn", "processedOn", "failedReason", "atm", "ats")
        push_job(queue, { id = id }, "failed")
      end
    end
    if job[1] or redis.call("EXISTS", key) == 1 or active_ids(active, prefix, name)[id] then return nil end
    mapping_of = mapping_of or select(2, undo_mappings.read(k))
    local mapping = mapping_of(member)
    if mapping.is_lost then return nil end
    local queue = open_queue(queues, prefix, name)
    for _, set in ipairs({ "delayed", "prioritized", "failed" }) do redis.call("ZCARD", queue.base .. set) end
    local _, member_id = split_job_key(prefix, member)
    local values = last_values(k, prefix, { [member] = outcome_of(k, member) }, budget)
    local undo = undo_job(gid, member_id, mapping, values[member])
    budget.bytes = budget.bytes - #undo.data
    return function()
      -- Its id may still be in its queue. A second entry would run it twice.
      local _, unsure = take_jobs(queue.base, { id }, 0, budget)
      if unsure[id] then return unsure[id] end
      redis.call("ZREM", queue.base .. "failed", id)
      add_job(queue, undo, now, k.undo, parent, {})
    end
  end

  local function leave() left = left + 1 end
  local due, fields = {}, redis.call("HGETALL", k.undo)
  for i = 1, #fields, 2 do
    local key = string.match(fields[i], "^retry:(.*)$")
    if key and (budget.undos <= 0 or budget.bytes <= 0) then
      leave()
    elseif key then
      local has_failed = redis.call("ZSCORE", k.undo_failed, key)
      local requeue = has_failed and prepare(key, redis.call("HGET", k.undo, key)) or nil
      if requeue then budget.undos = budget.undos - 1 end
      due[#due + 1] = { key = key, requeue = requeue }
    end
  end
  for _, each in ipairs(due) do
    local key, problem = each.key, each.requeue and each.requeue()
    if problem == "later" then
      leave()
    else
      redis.call("HDEL", k.undo, "retry:" .. key)
      if each.requeue and not problem then
        redis.call("ZREM", k.undo_failed, key)
        redis.call("SADD", k.undo_open, key)
        redis.call("HDEL", k.undo, "removed:" .. key)
      end
    end
  end
  close_queues(queues)
  if left > 0 then redis.call("HSET", k.group, "retrying", left) else redis.call("HDEL", k.group, "retrying") end
  return left
end
