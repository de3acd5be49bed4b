--[[
  Settle one group and park it; restore it first if somebody deleted some of its keys. A group that is being
  removed is only parked. `token` is its entry of
  the wake-up list, or empty. `queue` is its owning queue, or empty; it is needed only if the pseudo parent is
  gone. `with_snapshot` is whether the reply has a snapshot.

  Returns false if there is no such group, an error reply, or the reply of settle_group.lua and how much work the
  call did, in units of 3 microseconds.
]]
-- @include now_ms
-- @include find_group
-- @include keys_of
-- @include formats
-- @include names
-- @include owned_keys
-- @include restore_parent
-- @include restore_hash
-- @include settle
-- @include park
-- @include snapshot
-- @include split_job_key
-- @include saga
-- @include state_scores
-- In a long list, an entry is not searched: the drivers are busy with wake-ups.
local function is_woken(k, gid)
  return redis.call("LLEN", k.wakeups) > 1000 or redis.call("LPOS", k.wakeups, gid)
    or redis.call("LPOS", k.wakeups, names.undo_id(gid))
end

-- Return the queues with failed jobs of an ended group; somebody may retry these.
local function failed_queues(k, prefix)
  local queues, known = {}, {}
  for _, set in ipairs({ k.failed, k.undo_failed }) do
    for _, key in ipairs(redis.call("ZRANGE", set, 0, -1)) do
      local queue = split_job_key(prefix, key)
      if not known[queue] then queues[#queues + 1] = queue end
      known[queue] = true
    end
  end
  return queues
end

local function settle_and_park(prefix, gid, queue, token, request, grace, with_snapshot)
  local now = now_ms()
  local parent = names.job_key(prefix, "_jobgroups", gid)
  local k, problem = find_group(parent, prefix, gid)
  if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
  local is_leaving = redis.call("EXISTS", k.tomb) == 1
  if is_leaving and not problem then
    -- remove_group has deleted a part of the jobs. Those that are left would contradict the state.
    park(k, gid, redis.call("HGET", k.group, "state"), false, token)
    return false
  end
  if problem then
    local known = redis.call("HGET", parent, "queue")
    local restored = false
    if known then
      -- An ended group whose hash is gone has nothing left to do; review_groups discards it, if it is parked.
      if redis.call("HEXISTS", parent, "ended") == 1 then
        if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
        redis.call("ZADD", k.parked, "NX", string.format("%.0f", state_scores().FAILED + now), gid)
        return false
      end
      restored = not is_leaving and restore_hash(k, prefix, gid, known, now)
    elseif queue ~= "" then
      k = keys_of(prefix, gid, queue)
      restored = not is_leaving and redis.call("EXISTS", k.group) == 1
      -- A newer release writes its format into both hashes.
      if formats.is_newer(redis.call("HGET", k.group, "format")) then
        return redis.error_reply("NEWERFORMAT " .. gid)
      end
      if restored then restore_parent(k, prefix, gid, queue) end
    end
    if not restored then
      if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
      -- find_unparked finds a group that is not parked, if its hash is left.
      redis.call("ZREM", k.parked, gid, names.undo_id(gid))
      if not known then
        -- A worker on the pseudo queue that takes an entry without a hash creates one with its own fields.
        redis.call("UNLINK", parent)
        if is_leaving then redis.call("UNLINK", k.undo) end
      else
        redis.call("UNLINK", unpack(owned_keys(k)))
        for _, entry in ipairs({ gid, names.undo_id(gid) }) do redis.call("LREM", k.wakeups, 0, entry) end
        if redis.call("ZCARD", k.index) == 0 then redis.call("SREM", k.queues, known) end
      end
      return false
    end
  end

  local function counts()
    return redis.call("HMGET", k.group, "revision", "undoCount", "undoneCount", "undoFailedCount", "createdAt",
      "finishedAt")
  end
  local was, was_open = counts(), redis.call("SCARD", k.open)
  local state, before, more, open, entered, work = settle(k, prefix, gid, now, request, grace)
  local is = counts()
  -- While members of a compensating group are open, drivers settle it again and again.
  local repaired = token == "" and request == "" and (state ~= before or was[2] ~= is[2])
    and not (before == "COMPENSATING" and was_open > 0)
    and not is_woken(k, gid)
  park(k, gid, state, more, token)
  local has_ended = saga.has_ended(state) and not saga.has_ended(before)
  return cjson.encode({
    state = state,
    entered = entered,
    changed = was[1] ~= is[1],
    settledAt = now,
    ranFor = has_ended and not was[6] and now - (tonumber(is[5]) or now) or nil,
    more = more,
    open = open,
    repaired = repaired,
    undone = (is[3] or 0) - (was[3] or 0),
    undoFailed = (is[4] or 0) - (was[4] or 0),
    failedQueues = has_ended and failed_queues(k, prefix) or {},
    group = with_snapshot and snapshot(k, gid) or nil,
  }), work
end
