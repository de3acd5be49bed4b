--[[
  Resolve an undo that failed or waits: a person has undone the effect, or decided that it stays. No worker runs the
  undo any more. The first answer holds: a second call changes nothing.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group
  ARGV[3] job     id of the member whose undo is resolved
  ARGV[4] grace   milliseconds after which an active member without a worker is given up
  ARGV[5] by      who asked for it, or empty
  ARGV[6] reason  why

  Returns  JSON, as settle_group.lua: state, entered, changed, settledAt, more and group, and
           undoResolved if it was resolved by this call
  Errors   GROUPNOTFOUND  INVALIDSTATE  INVALIDJOBSTATE  NEWERFORMAT
]]
-- @include now_ms
-- @include active_ids
-- @include belongs
-- @include drop_jobs
-- @include find_group
-- @include formats
-- @include outcome_of_undo
-- @include record
-- @include settle_request
-- @include split_job_key
-- @include undos_of
local parent, prefix, gid, job, grace, by, reason =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]

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

local undo = undos_of(k, prefix)[job]
local outcome = undo and outcome_of_undo(k, undo)
if outcome == "resolved" then return reply end
if state ~= "FAILED_COMPENSATION" and state ~= "COMPENSATING" then return redis.error_reply("INVALIDSTATE " .. state) end
local function refuse(why) return redis.error_reply("INVALIDJOBSTATE " .. job .. " " .. why) end
if not outcome then return refuse("does not exist") end
if outcome == "completed" then return refuse("is completed already") end

local queue, id = split_job_key(prefix, undo)
local base = prefix .. ":" .. queue .. ":"
if active_ids({}, prefix, queue)[id] then return refuse("is running: resolve it when it has failed") end
local has_parents = redis.call("TYPE", base .. "waiting-children").ok == "zset"
if has_parents and redis.call("ZSCORE", base .. "waiting-children", id) then
  return refuse("waits for jobs that it added")
end
redis.call("ZCARD", base .. "delayed")
redis.call("ZCARD", base .. "prioritized")
redis.call("XLEN", base .. "events")
-- One that somebody removed from its parent counts as failed, but may still be in its queue.
local has_failed = outcome == "failed" and redis.call("ZSCORE", base .. "failed", id)
if outcome == "pending" or (not has_failed and belongs(k, gid, undo)) then
  -- One in a list that is too long to search is doomed where it is.
  drop_jobs(base, { id }, 0, { entries = 300000, longest = 300000 })
end
formats.raise(k, 2)
redis.call("HSET", k.resolved, undo, cjson.encode({ at = now, by = by, reason = reason }))
if redis.call("HDEL", k.undo, "retry:" .. undo) == 1 then redis.call("HINCRBY", k.group, "retrying", -1) end
-- settle dooms the undo and counts it.
redis.call("HSET", k.group, "resolvedCount", redis.call("HLEN", k.resolved))
record(k, now, "resolve", { by = by, job = job, reason = reason })
state, reply = settle_request(k, prefix, gid, now, grace, entered, 1)
return reply
