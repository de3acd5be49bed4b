--[[
  Add the jobs with which a group announces that it ended: one for each transition into an ended state in `ends`
  and each entry of its definition that matches that state. `ends` is a list of {state, attempt}.

  A job that cannot be added, because somebody changed a key of its queue or added a job with its id, is kept in the
  field `onEndLeft` of the group's hash, and the error in `onEndError`. Later calls add it. `left` is that field, or
  nil.
  The data of the user is inserted as JSON text: decoding it here would lose digits.

  Returns how many jobs the call dealt with.
]]
-- @include names
-- @include open_queue
-- @include add_job
-- @include close_queues
-- @include publish_owner_change
local END_STATES = { Completed = "COMPLETED", Failed = "FAILED", FailedCompensation = "FAILED_COMPENSATION" }
local MAX_ERROR = 512

-- Return the data of the jobs of one end, up to that of the user.
local function describe_end(k, gid, state, attempt)
  local names_of_counts = { "total", "completed", "failed", "cancelled", "undos", "undone", "undoFailed", "resolved" }
  local stored = redis.call("HMGET", k.group, "name", "failedJobId", "reason", "failedAttempts", "totalJobs",
    "completedCount", "failedCount", "cancelledCount", "undoCount", "undoneCount", "undoFailedCount", "resolvedCount")
  local counts, failure = {}, "null"
  for n, name in ipairs(names_of_counts) do counts[n] = string.format('"%s":%d', name, tonumber(stored[n + 4]) or 0) end
  if stored[3] then
    local job = { reason = stored[3] }
    if (stored[2] or "") ~= "" then
      job.jobId, job.attemptsMade = stored[2], tonumber(stored[4]) or 0
      local tail = ":" .. stored[2]
      for _, key in ipairs(redis.call("HKEYS", k.jobs)) do
        local name = string.sub(key, -#tail) == tail and redis.pcall("HGET", key, "name")
        if type(name) == "string" then job.jobName = name end
      end
    end
    failure = cjson.encode(job)
  end
  return string.format('{"groupId":"%s","groupName":%s,"state":"%s","attempt":%d,"failure":%s,"counts":{%s},"data":',
    gid, cjson.encode(stored[1]), state, attempt, failure, table.concat(counts, ","))
end

local function error_text(problem)
  local text = type(problem) == "table" and problem.err or tostring(problem)
  return string.match(text, "(%u%u%u+ .-) script: ") or string.match(text, "(%u%u%u+ .*)") or text
end

local function add_end_jobs(k, prefix, gid, now, ends, left)
  local due, jobs, queues, added, failed, problem = cjson.decode(left or "[]"), {}, {}, {}, {}, nil
  for _, each in ipairs(ends) do
    local text = describe_end(k, gid, each.state, each.attempt)
    due[#due + 1] = { state = each.state, attempt = each.attempt, text = text }
  end
  local known, entries = pcall(function() return cjson.decode(redis.call("GET", k.on_end)) end)
  if not known then failed, problem = due, "the key " .. k.on_end .. " cannot be read" end
  -- An end that this call found, or that no call could read the entries for, has a job for each entry that matches.
  for _, each in ipairs(known and due or {}) do
    if each.n then jobs[#jobs + 1] = each end
    for n, entry in ipairs(each.n and {} or entries) do
      if entry.when == "Always" or END_STATES[entry.when] == each.state then
        jobs[#jobs + 1] = { n = n, id = names.end_job_id(gid, n - 1, each.attempt), text = each.text }
      end
    end
  end

  -- Check everything first: each command on a key that add_job changes fails here if the key has another type.
  for _, job in ipairs(jobs) do
    local entry = entries[job.n]
    local ok, reply = pcall(function()
      local queue = open_queue(queues, prefix, entry.queue, entry.delay, entry.priority)
      if redis.call("EXISTS", queue.base .. job.id) == 1 then error("the queue has another job with this id", 0) end
      return queue
    end)
    if ok then
      added[#added + 1] = { reply, { id = job.id, name = entry.name, data = job.text .. entry.data .. "}",
        opts = entry.opts, delay = entry.delay, priority = entry.priority, lifo = entry.lifo } }
    else
      failed[#failed + 1] = job
      problem = problem or "job " .. job.id .. " for the queue " .. entry.queue .. ": " .. error_text(reply)
    end
  end
  for _, job in ipairs(added) do add_job(job[1], job[2], now) end
  close_queues(queues)
  if problem then
    redis.call("HSET", k.group, "onEndLeft", cjson.encode(failed), "onEndError", string.sub(problem, 1, MAX_ERROR))
  elseif left then
    redis.call("HDEL", k.group, "onEndLeft", "onEndError")
  end
  -- A reader of the group sees the change only with a higher revision.
  if #ends == 0 and #added > 0 then
    redis.call("HINCRBY", k.group, "revision", 1)
    publish_owner_change(k, gid, redis.call("HGET", k.parent, "owner"))
  end
  return #due + #jobs
end
