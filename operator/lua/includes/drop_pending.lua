--[[
  Remove the members that are not active from their queues, as many as the budget allows. A completed member
  that somebody runs again is removed, too, and stays completed.

  A member in a list that is too long to search stays in its queue, as does one that waits for children of its
  own. It is doomed, so no worker will run it, and it is cancelled like the others. A later call does not search
  for it again.

  Returns the number of members that can still finish, whether another call could drop some of them, and the
  completed members among them as a set.
]]
-- @include split_job_key
-- @include active_ids
-- @include call_in_batches
-- @include drop_jobs
-- @include give_up_worker
-- @include has_started
-- @include job_keys
-- @include undo_mappings
local function drop_pending(k, prefix, now, grace, budget)
  local seen, parents, pending, waiting, rerun, running, more = {}, {}, {}, {}, {}, {}, false
  local members = redis.call("SMEMBERS", k.open)
  for _, key in ipairs(redis.call("HKEYS", k.done)) do
    local job = redis.call("HMGET", key, "parentKey", "finishedOn")
    if job[1] == k.sealed and not job[2] and redis.call("HEXISTS", k.parent, "stuck:" .. key) == 0 then
      rerun[key] = true
      members[#members + 1] = key
    end
  end
  for _, key in ipairs(members) do
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    -- A foreign job may have this name as its id.
    if parents[queue] == nil then parents[queue] = redis.call("TYPE", base .. "waiting-children").ok == "zset" end
    if active_ids(seen, prefix, queue)[id] then
      if give_up_worker(k, base, id, now, grace) then running[key] = rerun[key] end
    elseif parents[queue] and redis.call("ZSCORE", base .. "waiting-children", id) then
      waiting[#waiting + 1] = key
    elseif budget.drops > 0 then
      pending[base] = pending[base] or {}
      table.insert(pending[base], id)
      budget.drops = budget.drops - 1
    else
      running[key], more = rerun[key], true
    end
  end

  local closed, statuses, unneeded = {}, {}, {}
  local function close(key, started)
    closed[#closed + 1] = key
    local value = redis.call("HGET", k.parent, "completed:" .. key)
    if value then
      redis.call("HSET", k.done, key, value)
      return
    end
    statuses[#statuses + 1] = key
    statuses[#statuses + 1] = "cancelled"
    if started then
      redis.call("HSET", k.parent, "started:" .. key, 1)
    elseif redis.call("HEXISTS", k.parent, "started:" .. key) == 0 then
      unneeded[#unneeded + 1] = key
    end
  end
  local function leave(key)
    redis.call("HSET", key, "parentKey", k.sealed)
    redis.call("HSET", k.parent, "stuck:" .. key, 1)
  end
  for _, key in ipairs(waiting) do
    leave(key)
    if not rerun[key] then close(key, true) end
  end
  for base, ids in pairs(pending) do
    local started = {}
    for _, id in ipairs(ids) do started[id] = has_started(base .. id) end
    local was, unsure = drop_jobs(base, ids, #members, budget)
    for _, id in ipairs(ids) do
      local key = base .. id
      if unsure[id] == "later" then
        running[key], more = rerun[key], true
      else
        if unsure[id] then
          leave(key)
        elseif not was[id] then
          redis.call("UNLINK", job_keys(key))
        end
        if not rerun[key] then close(key, started[id]) end
      end
    end
  end
  call_in_batches("SREM", k.open, closed)
  call_in_batches("HSET", k.jobs, statuses)
  undo_mappings.close(k, unneeded)
  redis.call("HINCRBY", k.group, "cancelledCount", #statuses / 2)
  local count = redis.call("SCARD", k.open)
  for _ in pairs(running) do count = count + 1 end
  return count, more, running
end
