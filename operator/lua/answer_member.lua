--[[
  Complete a pending member of a running group, or let it fail for good, without a worker. Its group advances as if
  a worker had finished the member.

  The first accepted answer holds: the same answer again changes nothing, and another one is refused.

  KEYS[1] parent   hash, the pseudo parent of the group's members
  ARGV[1] prefix   BullMQ's key prefix
  ARGV[2] gid      id of the group
  ARGV[3] job      id of the member
  ARGV[4] outcome  completed or failed
  ARGV[5] text     the return value as JSON, or the reason
  ARGV[6] digest   what equal answers have in common
  ARGV[7] by       who answers, or empty

  Returns  1 if the member was finished, 0 if it had been finished by the same answer
  Errors   GROUPNOTFOUND  INVALIDSTATE  INVALIDJOBSTATE  JOBNOTFOUND  NEWERFORMAT
]]
-- @include now_ms
-- @include find_group
-- @include names
-- @include split_job_key
-- @include active_ids
-- @include take_jobs
-- @include finish_member
-- @include record
-- @include publish_owner_change
local parent, prefix, gid, job, outcome, text, digest, by =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- As many entries of a list are searched as when a group is given up.
local budget = { entries = 300000, longest = 300000 }
local longest = budget.longest

local k, problem = find_group(parent, prefix, gid)
if problem then return redis.error_reply(problem .. " " .. gid) end
if redis.call("EXISTS", k.tomb) == 1 then return redis.error_reply("GROUPNOTFOUND " .. gid) end
local function refuse(why) return redis.error_reply("INVALIDJOBSTATE " .. why) end

local key
for _, each in ipairs(redis.call("HKEYS", k.jobs)) do
  local _, id = split_job_key(prefix, each)
  if id == job then key = each end
end
if not key then return redis.error_reply("JOBNOTFOUND " .. job) end

local answered = redis.call("HGET", parent, "answered:" .. key)
if answered then
  local first = cjson.decode(answered)
  if first.digest == digest then return 0 end
  return refuse("was already " .. first.outcome .. (first.by and " by " .. first.by or "")
    .. " with another answer: the first answer holds")
end
local state = redis.call("HGET", k.group, "state")
if state ~= "ACTIVE" then return redis.error_reply("INVALIDSTATE " .. state) end
-- A cancellation that was cut off still holds.
if redis.call("HEXISTS", parent, "requested") == 1 then return redis.error_reply("INVALIDSTATE COMPENSATING") end

if redis.call("HEXISTS", k.done, key) == 1 then return refuse("has completed") end
if redis.call("ZSCORE", k.failed, key) then return refuse("has failed") end
local queue = split_job_key(prefix, key)
local base = prefix .. ":" .. queue .. ":"
local function is_waiting_for_children()
  -- A foreign job may have this name as its id.
  return redis.call("TYPE", base .. "waiting-children").ok == "zset"
    and redis.call("ZSCORE", base .. "waiting-children", job)
end
if redis.call("SISMEMBER", k.open, key) == 0 or redis.call("HGET", key, "parentKey") ~= k.parent then
  return refuse("is not in its queue any more")
end
if active_ids({}, prefix, queue)[job] then return refuse("is active: its worker decides") end
if is_waiting_for_children() or redis.call("EXISTS", key .. ":dependencies", key .. ":unsuccessful") > 0 then
  return refuse("has jobs of its own: they decide")
end

redis.call("LLEN", k.records) -- fails before the first write if the key has another type
finish_member.check(k, base, key, outcome)
redis.call("ZCARD", base .. "delayed")
redis.call("ZCARD", base .. "prioritized")
local was, unsure = take_jobs(base, { job }, 0, budget)
if unsure[job] then
  return refuse("was not found: its queue has more than " .. longest .. " waiting jobs; answer it again later")
end
if not was[job] then return refuse("is not in its queue any more") end

local now = now_ms()
finish_member.finish(k, gid, base, job, was[job], outcome, text, now)
local accepted = { outcome = outcome, digest = digest, at = now, by = by ~= "" and by or nil }
-- `answers` tells readers that there is an answer.
redis.call("HSET", parent, "answered:" .. key, cjson.encode(accepted), "answers", 1)
local verb = outcome == "completed" and "complete" or "fail"
record(k, now, verb, { by = by, job = job, reason = outcome == "failed" and text or "" })
-- The owner of the group shows the record.
redis.call("HSET", k.group, "revision", (tonumber(redis.call("HGET", k.group, "revision")) or 1) + 1)
publish_owner_change(k, gid, redis.call("HGET", parent, "owner"))
return 1
