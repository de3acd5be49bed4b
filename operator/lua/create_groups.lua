--[[
  Create groups, each with all its members or not at all.

  A group that was already created from the same definition is not changed.

  KEYS[1] parked  zset of the parked groups
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] plans   msgpack, see jobgroup/definition/plan.py

  Returns  for each group: 1 if it was created, 0 if it existed, or an error reply
  Errors   GROUPEXISTS  GROUPREMOVED  JOBEXISTS  NEWERFORMAT  STATELOST
]]
-- @include find_group
-- @include keys_of
-- @include names
-- @include now_ms
-- @include family
-- @include as_job
-- @include owned_keys
-- @include state_scores
-- @include call_in_batches
-- @include open_queue
-- @include add_job
-- @include close_queues
local parked, now, prefix, plans = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- Shared by all groups of a call: each queue is read once and its workers are woken once.
local queues, created = {}, {}
local score = state_scores().ACTIVE + now

-- Add a field to a list of fields nine times. Redis moves a hash with more than 8 fields to a larger table in steps,
-- one with each field that is set, and until then keeps the smaller table: 64 bytes in each member that waits.
local function add_last(fields, name, value)
  for _ = 1, 9 do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  return fields
end
-- A value from the start. BullMQ deletes it only if somebody retries the job after it completed, so a member
-- without a value has completed before.
local NO_VALUE_YET = add_last({}, "returnvalue", "null")

-- Return the reply for a group of which some keys exist.
local function refuse(wanted, gid, digest, job_keys)
  if redis.call("EXISTS", wanted.tomb) == 1 then return redis.error_reply("GROUPREMOVED " .. gid) end
  local k, problem = find_group(wanted.parent, prefix, gid)
  if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
  if not problem and (redis.call("HGET", k.group, "digest") or "") == digest then return 0 end
  -- BullMQ's removeAllQueueData removes the group's hash with its queue, but not the ledger.
  if problem and redis.call("HEXISTS", wanted.parent, "queue") == 1 then
    return redis.error_reply("STATELOST " .. gid)
  end
  if redis.call("EXISTS", unpack(owned_keys(wanted))) == 0 then
    for _, key in ipairs(job_keys) do
      if redis.call("EXISTS", key) == 1 then return redis.error_reply("JOBEXISTS " .. key) end
    end
  end
  return redis.error_reply("GROUPEXISTS " .. gid)
end

-- Return the keys of the members, and of the jobs that the first end of the group may add.
local function with_end_jobs(group, job_keys)
  local keys = { unpack(job_keys) }
  for n, queue in ipairs(group.end_queues) do
    keys[#keys + 1] = names.job_key(prefix, queue, names.end_job_id(group.id, n - 1, 1))
  end
  return keys
end

local function create_group(digest, plan)
  local group = cmsgpack.unpack(plan)
  local gid, members = group.id, group.members
  local owning_queue = members[1].queue
  local k = keys_of(prefix, gid, owning_queue)
  local job_keys = {}
  for n, member in ipairs(members) do
    member.id = names.job_id(gid, n - 1)
    job_keys[n] = names.job_key(prefix, member.queue, member.id)
  end
  local new_keys = group.on_end and with_end_jobs(group, job_keys) or job_keys

  -- Check everything first: Redis does not roll back. Usually no key exists, so two calls are enough.
  local taken = redis.call("EXISTS", k.tomb, unpack(owned_keys(k))) + call_in_batches("EXISTS", new_keys[1], new_keys)
  if taken > 0 then return refuse(k, gid, digest, new_keys) end
  for _, member in ipairs(members) do open_queue(queues, prefix, member.queue, member.delay, member.priority) end
  local owning = queues[owning_queue]
  owning.groups = owning.groups or redis.call("ZCARD", k.index)
  if owning.groups == 0 then redis.call("SCARD", k.queues) end
  if group.deadline then redis.call("ZCARD", k.due) end

  -- Write only from here on.
  local statuses, parent = {}, family(k, gid)
  for n, member in ipairs(members) do
    add_job(queues[member.queue], member, now, k.parent, parent, NO_VALUE_YET)
    statuses[#statuses + 1] = job_keys[n]
    statuses[#statuses + 1] = "pending"
  end
  redis.call("HSET", k.parent, as_job(group.name, now, "queue", owning_queue, unpack(group.parent)))
  if group.on_end then redis.call("SET", k.on_end, group.on_end) end
  call_in_batches("SADD", k.open, job_keys)
  call_in_batches("HSET", k.jobs, statuses)
  if group.compensation ~= "{}" then add_last(group.fields, "cancelledCount", "0") end
  redis.call("HSET", k.group, "name", group.name, "state", "ACTIVE", "createdAt", now, "updatedAt", now,
    "totalJobs", #members, "completedCount", "0", "failedCount", "0", "cancelledCount", "0",
    "compensation", group.compensation, unpack(group.fields))
  if owning.groups == 0 then redis.call("SADD", k.queues, owning_queue) end
  if not owning.owns_groups then
    redis.call("HSET", owning.base .. "meta", "groups", 1)
    owning.owns_groups = true
  end
  -- Not from the clock of the client: take_due.lua compares with that of Redis.
  if group.deadline then redis.call("ZADD", k.due, string.format("%.0f", now_ms() + group.deadline * 1000), gid) end
  owning.groups = owning.groups + redis.call("ZADD", k.index, now, gid)
  created[#created + 1] = score
  created[#created + 1] = gid
  return 1
end

redis.call("ZCARD", parked)
local replies = {}
for n, each in ipairs(cmsgpack.unpack(plans)) do
  -- Commands fail only while checking, before the first write. An error concerns this group alone.
  local done, reply = pcall(create_group, each.digest, each.plan)
  replies[n] = (done or type(reply) == "table") and reply or redis.error_reply(reply)
end
close_queues(queues)
call_in_batches("ZADD", parked, created)
return replies
