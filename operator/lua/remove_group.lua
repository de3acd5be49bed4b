--[[
  Remove an ended group with its members, undos and keys; one call removes at most 200 jobs. A tombstone
  remains, so that the group cannot be created again.

  KEYS[1] parent     hash, the pseudo parent of the group's members
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] gid        id of the group
  ARGV[4] remembers  milliseconds the tombstone is kept

  Returns  1 if jobs are left for another call, 0 if the group is gone
  Errors   GROUPNOTFOUND  INVALIDSTATE
]]
-- @include keys_of
-- @include names
-- @include owned_keys
-- @include split_job_key
-- @include drop_jobs
-- @include saga
local parent, now, prefix, gid, remembers = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local queue_name = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue_name or "")
if not queue_name or redis.call("EXISTS", k.group) == 0 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
local state = redis.call("HGET", k.group, "state")
if not saga.is_terminal(state) then return redis.error_reply("INVALIDSTATE " .. state) end

redis.call("SET", k.tomb, now, "PX", remembers)
local budget = { jobs = 200, entries = 300000 }
local function forget(hash, keys)
  for _, key in ipairs(keys) do
    if budget.jobs <= 0 then return end
    budget.jobs = budget.jobs - 1
    local queue, id = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    if redis.call("ZREM", base .. "completed", id) == 0 and redis.call("ZREM", base .. "failed", id) == 0
      and redis.call("EXISTS", key) == 1 then
      -- The job was retried manually, so it may be waiting.
      local _, known = drop_jobs(base, { id }, 0, budget)
      if not known then
        budget.jobs = 0
        return
      end
    end
    -- A job that was retried manually and is active keeps its hash: its worker needs it.
    if redis.call("EXISTS", key .. ":lock") == 0 then
      -- A job whose worker died must leave the list: a stall check would revive it.
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

redis.call("UNLINK", unpack(owned_keys(k)))
redis.call("ZREM", k.index, gid)
redis.call("ZREM", k.ended, gid)
for _, token in ipairs({ gid, names.undo_id(gid) }) do
  redis.call("ZREM", k.parked, token)
  redis.call("LREM", k.wakeups, 0, token)
end
return 0
