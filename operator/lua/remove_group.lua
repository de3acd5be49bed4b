--[[
  Remove an ended group for good: its members, its undos and all its keys, a bounded piece a call. A
  tombstone stays, so that nobody makes the group again.

  KEYS[1] parent     hash, the group's pseudo parent
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        the group
  ARGV[4] remembers  milliseconds the tombstone stays

  Returns  1 if jobs are left for another call, 0 if the group is gone
  Errors   GROUPNOTFOUND  INVALIDSTATE
]]
-- @include keys_of
-- @include place_of
-- @include drop_jobs
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local queue_name = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue_name or "")
if not queue_name or redis.call("EXISTS", k.group) == 0 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
local state = redis.call("HGET", k.group, "state")
if state == "ACTIVE" or state == "COMPENSATING" then return redis.error_reply("INVALIDSTATE " .. state) end

redis.call("SET", k.tomb, now, "PX", remembers)
local budget = { jobs = 200, entries = 300000 }
local function forget(hash, keys)
  for _, key in ipairs(keys) do
    if budget.jobs <= 0 then return end
    budget.jobs = budget.jobs - 1
    local queue, id = place_of(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    if redis.call("ZREM", base .. "completed", id) == 0 and redis.call("ZREM", base .. "failed", id) == 0
      and redis.call("EXISTS", key) == 1 then
      -- Retried by hand, so it may wait somewhere.
      local _, known = drop_jobs(base, { id }, 0, budget)
      if not known then
        budget.jobs = 0
        return
      end
    end
    -- One at work again, retried by hand, keeps its hash until it ends: a ghost would run nameless.
    if redis.call("EXISTS", key .. ":lock") == 0 then
      -- Nor may one whose worker died stay listed: a stall check would bring it back.
      redis.call("LREM", base .. "active", 1, id)
      redis.call("SREM", base .. "stalled", id)
      redis.call("UNLINK", key, key .. ":logs")
    end
    redis.call("HDEL", hash, key)
  end
end
local undos = {}
local made = redis.call("HGETALL", k.undo)
for i = 1, #made, 2 do
  if string.sub(made[i + 1], 1, #prefix + 1) == prefix .. ":" then undos[#undos + 1] = made[i] end
end
forget(k.undo, undos)
forget(k.jobs, redis.call("HKEYS", k.jobs))
if budget.jobs <= 0 then return 1 end

redis.call("UNLINK", k.group, k.jobs, k.parent, k.open, k.done, k.failed, k.templates,
  k.undo, k.undo_open, k.undo_done, k.undo_failed)
redis.call("ZREM", k.index, gid)
redis.call("ZREM", k.ended, gid)
redis.call("ZREM", k.parked, gid, gid .. "-undo")
redis.call("LREM", k.wakeups, 0, gid)
redis.call("LREM", k.wakeups, 0, gid .. "-undo")
return 0
