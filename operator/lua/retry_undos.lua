--[[
  Retry failed undos of a group whose compensation failed, with fresh attempts. The group compensates again; this call
  adds at most 200 undos to their queues, and drivers add the others. A second call while they run changes nothing.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group
  ARGV[3] jobs    JSON, the ids of the members whose undos are retried; {} for all undos that failed
  ARGV[4] below   do nothing if the group has been retried as often as this; empty for no limit
  ARGV[5] grace   milliseconds after which an active member without a worker is given up
  ARGV[6] by      who asked for it, or empty

  Returns  JSON, as settle_group.lua: state, entered, changed, settledAt, more and group
  Errors   GROUPNOTFOUND  INVALIDSTATE  INVALIDJOBSTATE  NEWERFORMAT
]]
-- @include now_ms
-- @include active_ids
-- @include find_group
-- @include formats
-- @include open_queue
-- @include outcome_of_undo
-- @include record
-- @include settle_request
-- @include split_job_key
-- @include undo_mappings
-- @include undos_of
local parent, prefix, gid, jobs, below, grace, by =
  KEYS[1], ARGV[1], ARGV[2], cjson.decode(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

local k, problem = find_group(parent, prefix, gid)
if problem then return redis.error_reply(problem .. " " .. gid) end
if redis.call("EXISTS", k.tomb) == 1 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
-- Fail before the first write if a key has another type.
redis.call("LLEN", k.records)
redis.call("XLEN", k.events)
redis.call("HLEN", k.resolved)
local now, entered = now_ms(), {}
-- First, so that an undo that somebody retried or removed is not taken for a failed one.
local state, reply = settle_request(k, prefix, gid, now, grace, entered)
local retried = redis.call("HMGET", k.group, "retries", "compensatingAt", "attempt", "finishedAt")
if below and tonumber(retried[1] or 0) >= below then return reply end
local is_retrying = state == "COMPENSATING" and retried[2]
if state ~= "FAILED_COMPENSATION" and not is_retrying then return redis.error_reply("INVALIDSTATE " .. state) end

local undos = undos_of(k, prefix)
local mapping_of, active = select(2, undo_mappings.read(k)), {}

-- Return why an undo cannot be retried; nil if it can.
local function obstacle(undo)
  if not undo then return "does not exist" end
  local outcome = outcome_of_undo(k, undo)
  -- One that was retried before may run, or have completed.
  if is_retrying and (outcome == "pending" or outcome == "completed") then return nil end
  if outcome ~= "failed" then return "is " .. outcome .. " already" end
  if is_retrying then return redis.call("HEXISTS", k.undo, "retry:" .. undo) == 0 and "failed again: wait until the group has ended" or nil end
  local its_parent = redis.call("HGET", undo, "parentKey")
  if its_parent == k.undo then return nil end
  if redis.call("EXISTS", undo) == 1 then return "has the id of a job that somebody else added" end
  local queue, id = split_job_key(prefix, undo)
  if active_ids(active, prefix, queue)[id] then return "is active in its queue, but its hash is gone: retry it later" end
  local lost = "is gone, and what it had to do is lost: resolve it"
  return mapping_of(redis.call("HGET", k.undo, undo)).is_lost and lost or nil
end

local wanted = {}
for _, id in ipairs(jobs) do
  local why = obstacle(undos[id])
  if why then return redis.error_reply("INVALIDJOBSTATE " .. id .. " " .. why) end
  wanted[#wanted + 1] = undos[id]
end
if is_retrying then return reply end
for _, undo in pairs(#jobs == 0 and undos or {}) do
  if not obstacle(undo) then wanted[#wanted + 1] = undo end
end
if #wanted == 0 then return redis.error_reply("INVALIDJOBSTATE") end

-- Fail before the first write if a key has another type.
local queues = {}
for _, undo in ipairs(wanted) do
  local base = open_queue(queues, prefix, (split_job_key(prefix, undo))).base
  for _, set in ipairs({ "delayed", "prioritized", "failed" }) do redis.call("ZCARD", base .. set) end
end
formats.raise(k, 2)
for _, undo in ipairs(wanted) do redis.call("HSET", k.undo, "retry:" .. undo, 1) end
redis.call("HSET", k.group, "retrying", #wanted)
local retries = redis.call("HINCRBY", k.group, "retries", 1)
-- Also in the pseudo parent, because somebody may delete the group's hash.
redis.call("HSET", k.parent, "retries", retries, "attempt", retried[3] or (retried[4] and 1 or 0))
record(k, now, "retryUndos", { by = by, job = #jobs == 1 and jobs[1] or "" })
state, reply = settle_request(k, prefix, gid, now, grace, entered)
return reply
