--[[
  Create groups, each with all its members, or nothing of it.

  A group that exists already is left as it is, if it was made from the same plan.

  KEYS[1] parked  zset, where groups wait until a worker wakes them
  ARGV[1] now     milliseconds since the epoch
  ARGV[2] prefix  BullMQ's key prefix
  ARGV[3] plans   packed {digest, plan} of each, see jobgroup/plan.py

  Returns  of each group: 1 if it was created, 0 if it was there, or why not
  Errors   GROUPEXISTS  GROUPREMOVED  JOBEXISTS  STATELOST
]]
-- @include keys_of
-- @include bulk
-- @include open_queue
-- @include add_job
-- @include close_queues
local parked, now, prefix, plans = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- What all groups of a call share: each queue is read once, and told of its new jobs once.
local queues, created = {}, {}

local function create_group(digest, plan)
  local gid, name, owner, compensation, members, fields = unpack(cmsgpack.unpack(plan))
  local k = keys_of(prefix, gid, members[1][1])
  local job_keys = {}
  for n, member in ipairs(members) do job_keys[n] = prefix .. ":" .. member[1] .. ":" .. gid .. "-" .. (n - 1) end

  -- Check everything first. As a rule nothing is there, and asking for all keys at once says so.
  if redis.call("EXISTS", k.tomb, k.parent, k.group, k.jobs, k.open, k.templates) + bulk("EXISTS", job_keys[1], job_keys) > 0 then
    if redis.call("EXISTS", k.tomb) == 1 then return redis.error_reply("GROUPREMOVED " .. gid) end
    local known = redis.call("HGET", k.parent, "digest")
    if known == digest then
      -- BullMQ's removeAllQueueData takes the hash with its queue, and leaves the books.
      return redis.call("EXISTS", k.group) == 1 and 0 or redis.error_reply("STATELOST " .. gid)
    end
    if not known and redis.call("EXISTS", k.group) == 0 then
      for _, key in ipairs(job_keys) do
        if redis.call("EXISTS", key) == 1 then return redis.error_reply("JOBEXISTS " .. key) end
      end
    end
    return redis.error_reply("GROUPEXISTS " .. gid)
  end
  for _, member in ipairs(members) do open_queue(queues, prefix, member[1], member[5], member[6]) end
  local owning = queues[members[1][1]]
  owning.groups = owning.groups or redis.call("ZCARD", k.index)

  -- Then write.
  local statuses, templates = {}, {}
  local family = '{"id":"' .. gid .. '","queueKey":"' .. k.books .. '","fpof":true}'
  for n, member in ipairs(members) do
    local queue_name, job_name, data, opts, delay, priority, lifo, undo = unpack(member)
    local job = { id = gid .. "-" .. (n - 1), name = job_name, data = data, opts = opts,
      delay = delay, priority = priority, lifo = lifo }
    add_job(queues[queue_name], job, now, k.parent, family)
    statuses[#statuses + 1] = job_keys[n]
    statuses[#statuses + 1] = "pending"
    if undo then
      templates[#templates + 1] = job_keys[n]
      templates[#templates + 1] = job_name
    end
  end
  redis.call("HSET", k.parent, "queue", members[1][1], "owner", owner, "digest", digest)
  bulk("SADD", k.open, job_keys)
  bulk("HSET", k.parent, fields)
  bulk("HSET", k.templates, templates)
  bulk("HSET", k.jobs, statuses)
  redis.call("HSET", k.group, "name", name, "state", "ACTIVE", "createdAt", now, "updatedAt", now,
    "totalJobs", #members, "completedCount", "0", "failedCount", "0", "cancelledCount", "0",
    "compensation", compensation, "revision", "1", "counts", "ACTIVE 0 0 0 0 0 0")
  redis.call("ZADD", k.index, now, gid)
  created[#created + 1] = now
  created[#created + 1] = gid
  return 1
end

redis.call("ZCARD", parked)
local answers = {}
for n, digest_and_plan in ipairs(cmsgpack.unpack(plans)) do
  -- What Redis itself refuses, it refuses while checking: that ends one group and not the others.
  local done, answer = pcall(create_group, unpack(digest_and_plan))
  answers[n] = (done or type(answer) == "table") and answer or redis.error_reply(answer)
end
close_queues(queues)
bulk("ZADD", parked, created)
return answers
