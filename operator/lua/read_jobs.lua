--[[
  Read the status of each member. It is right even while no driver runs.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group

  Returns  nothing if there is no such group, or JSON with one list for each of jobKey, queueName, jobId,
           status and undo, which is empty, pending, completed, failed or resolved; for undoQueue, which is the
           queue of an undo that was added, if one of them is not in its default queue; for answer,
           which is the digest of the answer that finished the member, if one was accepted; and for resolvedBy and
           resolvedReason, if an undo was resolved. One object for each member would be half as large again, and take
           half as long again in Redis and twice as long in Python.
  Errors   NEWERFORMAT
]]
-- @include find_group
-- @include names
-- @include split_job_key
-- @include active_ids
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local k, problem = find_group(parent, prefix, gid)
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if problem then return false end
local seen, undo_keys = {}, {}
local undo_ledger = redis.call("HGETALL", k.undo)
-- Most groups have no undos.
local resolved = #undo_ledger > 0 and redis.call("HGETALL", k.resolved) or {}
local resolutions, resolved_by, resolved_reasons = {}, {}, {}
for i = 1, #resolved, 2 do resolutions[resolved[i]] = cjson.decode(resolved[i + 1]) end
for i = 1, #undo_ledger, 2 do
  -- The name of the group may be any text.
  if undo_ledger[i] ~= "name" then undo_keys[undo_ledger[i + 1]] = undo_ledger[i] end
end
local job_keys, queues, ids, job_statuses, undos, undo_queues, names_queue = {}, {}, {}, {}, {}, {}, false
local answers = {}
local function answer_to(key)
  local answered = redis.call("HGET", parent, "answered:" .. key)
  return answered and cjson.decode(answered).digest or ""
end
local statuses = redis.call("HGETALL", k.jobs)
for i = 1, #statuses, 2 do
  local key, status = statuses[i], statuses[i + 1]
  local queue, id = split_job_key(prefix, key)
  if redis.call("HEXISTS", k.done, key) == 1 then
    status = "completed"
  elseif redis.call("ZSCORE", k.failed, key) then
    status = "failed"
  elseif redis.call("SISMEMBER", k.open, key) == 1 then
    status = active_ids(seen, prefix, queue)[id] and "active" or "pending"
  elseif status ~= "cancelled" then
    status = "failed"
  end
  local n = #ids + 1
  local undo, undo_queue = "", ""
  if #undo_ledger > 0 then
    local default_key = names.job_key(prefix, names.undo_queue(queue), names.undo_id(id))
    local undo_key = undo_keys[key] or default_key
    if undo_key ~= default_key then undo_queue, names_queue = split_job_key(prefix, undo_key), true end
    if redis.call("HEXISTS", k.undo_done, undo_key) == 1 then
      undo = "completed"
    elseif redis.call("ZSCORE", k.undo_failed, undo_key) then
      undo = "failed"
    elseif redis.call("SISMEMBER", k.undo_open, undo_key) == 1 then
      undo = "pending"
    elseif redis.call("HEXISTS", k.undo, undo_key) == 1 then
      undo = "failed"
    end
    local resolution = undo == "failed" and resolutions[undo_key]
    if resolution then undo = "resolved" end
    resolved_by[n], resolved_reasons[n] = resolution and resolution.by or "", resolution and resolution.reason or ""
  end
  job_keys[n], queues[n], ids[n], job_statuses[n], undos[n] = key, queue, id, status, undo
  undo_queues[n] = undo_queue
  if k.has_answers then answers[n] = answer_to(key) end
end
return cjson.encode({ jobKey = job_keys, queueName = queues, jobId = ids, status = job_statuses, undo = undos,
  undoQueue = names_queue and undo_queues or nil, answer = k.has_answers and answers or nil,
  resolvedBy = #resolved > 0 and resolved_by or nil, resolvedReason = #resolved > 0 and resolved_reasons or nil })
