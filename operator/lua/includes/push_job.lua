--[[
  Add the id of a job that need not wait for a time to an opened queue; `close_queues` pushes it. `previous` is the
  state that the job leaves, nil for a new one.

  A job for a paused queue goes to `prioritized`, with the priority 0. There every version of BullMQ finds it after
  it has resumed the queue. Versions disagree about the lists: up to 5, pausing and resuming moves one list
  over the other, which destroys the jobs that a later version put there. `release_jobs` moves the job to `wait`.
]]
local function push_job(queue, job, previous)
  local base, id = queue.base, job.id
  if job.priority or queue.is_paused then
    local place = redis.call("INCR", base .. "pc") % 4294967296
    local score = job.priority and job.priority * 4294967296 + place or (job.lifo and -place or place)
    redis.call("ZADD", base .. "prioritized", string.format("%.0f", score), id)
  else
    local ids = job.lifo and queue.tail or queue.head
    ids[#ids + 1] = id
  end
  queue.runnable = true
  local event = previous and { "waiting", "jobId", id, "prev", previous } or { "waiting", "jobId", id }
  redis.call("XADD", queue.events, "MAXLEN", "~", queue.max_events or "10000", "*", "event", unpack(event))
end
