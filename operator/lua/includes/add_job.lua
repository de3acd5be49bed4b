--[[
  Add one job to an opened queue and write the keys that BullMQ's own producers write; `close_queues`
  then pushes the ids and wakes the workers, once per queue.

  Two parts are left out: the counter of automatic ids, because our jobs have ids of their own, and
  deduplication, which members and undos cannot use. A member or an undo has a parent, and `fields` are additional
  fields of its hash; a job of onEnd has neither. The field `group` of the event shows that the job was not added by
  another producer with the same id.
]]
-- @include push_job
local function add_job(queue, job, now, parent_key, parent, fields)
  local base, id = queue.base, job.id
  if not queue.max_events then
    queue.max_events = "10000"
    redis.call("HSET", base .. "meta", "opts.maxLenEvents", queue.max_events)
  end
  local delay, priority = job.delay or "0", job.priority or "0"
  if parent_key then
    redis.call("HSET", base .. id, "name", job.name, "data", job.data, "opts", job.opts, "timestamp", now,
      "delay", delay, "priority", priority, "parentKey", parent_key, "parent", parent, unpack(fields))
  else
    redis.call("HSET", base .. id, "name", job.name, "data", job.data, "opts", job.opts, "timestamp", now,
      "delay", delay, "priority", priority)
  end
  redis.call("XADD", queue.events, "*", "event", "added", "jobId", id, "name", job.name, "group", "1")
  if job.delay then
    -- The low 12 bits order the jobs that are due in the same millisecond.
    local due = now + job.delay
    local score, last = due * 4096, due * 4096 + 4095
    local same = redis.call("ZREVRANGEBYSCORE", base .. "delayed", last, score, "WITHSCORES", "LIMIT", 0, 1)
    if same[2] then score = math.min(tonumber(same[2]) + 1, last) end
    redis.call("ZADD", base .. "delayed", string.format("%.0f", score), id)
    redis.call("XADD", queue.events, "MAXLEN", "~", queue.max_events, "*", "event", "delayed",
      "jobId", id, "delay", string.format("%.0f", due))
    queue.due = true
    return
  end
  push_job(queue, job)
end
