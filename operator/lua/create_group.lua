--[[
  Create a group and all its members, or nothing.

  A group that exists already is left as it is, if it was made from the same plan.

  KEYS[1] parent  hash, the pseudo parent of the members: BullMQ keeps the ledger beside it
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] plan    packed, see jobgroup/plan.py

  Returns  1 if the group was created, 0 if it was there
  Errors   GROUPEXISTS  GROUPREMOVED  JOBEXISTS
]]
-- @include keys_of
-- @include bulk
-- @include open_queue
-- @include add_job
local parent, now, prefix, packed = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]

local gid, name, owner, compensation, members = unpack(cmsgpack.unpack(packed))
local k = keys_of(prefix, gid, members[1][1])
local digest = redis.sha1hex(packed)

-- Check everything first.
if redis.call("EXISTS", k.tomb) == 1 then return redis.error_reply("GROUPREMOVED " .. gid) end
local known = redis.call("HGET", parent, "digest")
if known == digest then return 0 end
if known or redis.call("EXISTS", k.group) == 1 then return redis.error_reply("GROUPEXISTS " .. gid) end
local queues, job_keys = {}, {}
for n, member in ipairs(members) do
  local queue = open_queue(queues, prefix, member[1])
  job_keys[n] = queue.base .. gid .. "-" .. (n - 1)
  if redis.call("EXISTS", job_keys[n]) == 1 then return redis.error_reply("JOBEXISTS " .. job_keys[n]) end
end
redis.call("ZCARD", k.parked)
redis.call("ZCARD", k.index)

-- Then write.
local statuses, templates, names = {}, {}, {}
local family = '{"id":"' .. gid .. '","queueKey":"' .. k.books .. '","fpof":true}'
for n, member in ipairs(members) do
  local queue_name, job_name, data, opts, delay, priority, lifo, undo = unpack(member)
  local job = { id = gid .. "-" .. (n - 1), name = job_name, data = data, opts = opts,
    delay = delay, priority = priority, lifo = lifo }
  add_job(queues[queue_name], job, now, parent, family)
  statuses[#statuses + 1] = job_keys[n]
  statuses[#statuses + 1] = "pending"
  if undo then
    templates[#templates + 1] = job_keys[n]
    templates[#templates + 1] = cmsgpack.pack(undo)
  end
end
for queue_name in pairs(queues) do names[#names + 1] = queue_name end
redis.call("HSET", parent, "queue", members[1][1], "queues", table.concat(names, " "),
  "owner", owner, "digest", digest)
bulk("SADD", k.open, job_keys)
bulk("HSET", k.templates, templates)
bulk("HSET", k.jobs, statuses)
redis.call("HSET", k.group, "name", name, "state", "ACTIVE", "createdAt", now, "updatedAt", now,
  "totalJobs", #members, "completedCount", 0, "failedCount", 0, "cancelledCount", 0,
  "compensation", compensation, "revision", 1, "counts", "ACTIVE 0 0 0 0 0 0")
redis.call("ZADD", k.index, now, gid)
redis.call("ZADD", k.parked, now, gid)
return 1
