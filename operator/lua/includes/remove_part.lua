--[[
  Remove an ended group with its members, undos and keys, or as many of its jobs as the budget allows. A tombstone
  remains, so that the group cannot be created again. No transition happens from the first call on.

  `budget` is shared by the groups of a call: how many `jobs` to remove, how many `entries` of lists to walk, the
  `longest` list to walk, and how many `events` to read.

  Returns whether jobs are left for another call.
]]
-- @include belongs
-- @include ledgers
-- @include split_job_key
-- @include drop_jobs
-- @include job_keys
-- @include remove_on_fail
-- @include restore_undos
-- @include discard_group
-- @include close_unused_queue
local function remove_part(k, prefix, gid, now, remembers, budget)
  local touched, is_marked = {}, false

  -- Not before the first deletion: a full Redis refuses a write that needs memory before it.
  local function mark()
    if not is_marked then redis.call("SET", k.tomb, now, "PX", remembers) end
    is_marked = true
  end

  -- Remove one job; return whether it is certain that no worker will take what is left of it.
  local function remove_job(base, id)
    local key = base .. id
    -- Another producer may have added a job with this id since the group's own job was removed.
    if redis.call("EXISTS", key) == 1 and not belongs(k, gid, key) then return true end
    -- A job that was retried manually and is active keeps its hash: its worker needs it.
    if redis.call("EXISTS", key .. ":lock") == 1 then return true end
    -- A job whose worker died must leave the list: a stall check would revive it.
    redis.call("SREM", base .. "stalled", id)
    local function leaves(set) return redis.call("ZREM", base .. set, id) == 1 end
    local has_parents = redis.call("TYPE", base .. "waiting-children").ok == "zset"
    if not leaves("completed") and not leaves("failed") and not (has_parents and leaves("waiting-children"))
      and redis.call("LREM", base .. "active", 1, id) == 0 and redis.call("EXISTS", key) == 1 then
      -- It was retried manually, or its list was too long to search when the group was given up.
      local _, unsure = drop_jobs(base, { id }, 0, budget)
      if unsure[id] == "later" then return false end
      if unsure[id] == "never" then
        -- The entry of a list would run without a name if its hash were gone. BullMQ removes a job that fails.
        local opts = remove_on_fail(redis.call("HGET", key, "opts"))
        redis.call("HSET", key, "defa", "group " .. gid .. " was removed", "opts", opts)
        return true
      end
    end
    redis.call("UNLINK", job_keys(key))
    return true
  end

  local function remove_jobs(hash, keys)
    for _, key in ipairs(keys) do
      local queue, id = split_job_key(prefix, key)
      local base = prefix .. ":" .. queue .. ":"
      if budget.jobs > 0 and remove_job(base, id) then
        redis.call("HDEL", hash, key)
        -- At once: a key of the next queue may have another type, which ends the call.
        mark()
        budget.jobs = budget.jobs - 1
        touched[base] = true
      else
        budget.jobs = 0
        return
      end
    end
  end
  -- The first call restores the list of undos, if somebody deleted it.
  local has_undos = tonumber(redis.call("HGET", k.group, "undoCount") or 0) > 0
  if has_undos and redis.call("EXISTS", k.tomb) == 0 then restore_undos(k, prefix) end
  remove_jobs(k.undo, ledgers.undos(k, prefix).list())
  remove_jobs(k.jobs, redis.call("HKEYS", k.jobs))
  local left = budget.jobs <= 0
  if left then
    mark()
  else
    local queue = redis.call("HGET", k.parent, "queue")
    touched[prefix .. ":" .. queue .. ":"] = true
    discard_group(k, gid, queue, now, remembers)
  end
  for base in pairs(touched) do close_unused_queue(k, gid, base, budget) end
  return left
end
