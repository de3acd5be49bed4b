--[[
  Settle the first groups of the wake-up list and park them. One call finds out which groups were woken and
  settles them. An idle driver sends it behind a command that blocks until a worker adds to the list: Redis then
  runs it before the worker can start another job.

  A group that cannot be settled stays on the list; `skip` is how many entries to pass over. A call that leaves
  other entries adds the marker, so that the next command that blocks returns at once.

  KEYS[1] wakeups   list of the groups to settle
  KEYS[2] parked    zset of the parked groups
  KEYS[3] marker    zset on which idle drivers block
  KEYS[4] events    stream with an event for each group that BullMQ puts on the list
  ARGV[1] prefix    BullMQ's key prefix
  ARGV[2] skip      how many entries of the list to pass over
  ARGV[3] limit     how many entries to settle; fewer if that is much work
  ARGV[4] grace     milliseconds after which an active member without a worker is given up
  ARGV[5] snapshot  1 to return snapshots of the groups, else 0

  Returns  for each entry: the entry, and the reply of settle_group.lua or an error reply, such as NEWERFORMAT.
           Instead of that reply, a number if the group completed, no work is left for another call, and no
           snapshot was asked for: for how many milliseconds the group ran
]]
-- @include call_in_batches
-- @include complete
-- @include now_ms
-- @include park
-- @include settle_and_park
-- @include snapshot
-- @include state_scores
-- @include names
local wakeups, parked, marker, events, prefix, skip, limit, grace, with_snapshot =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == "1"

-- A call ends after about 5 ms, or with the group that exceeds them. This is its work in units of 3 microseconds.
local MOST_WORK = 1500

local now, completed, work = now_ms(), {}, 0
local score = string.format("%.0f", state_scores().COMPLETED + now)
local function settle_entry(token)
  local gid = names.group_of_wakeup(token)
  local k, ran_for, more, done = complete(prefix, gid, now)
  if not k then
    local reply, settling = settle_and_park(prefix, gid, "", token, "", grace, with_snapshot)
    work = work + (settling or 1)
    return reply
  end
  work = work + done
  if more then
    park(k, gid, "COMPLETED", more, token)
  else
    redis.call("LREM", wakeups, 1, token)
    completed[#completed + 1] = score
    completed[#completed + 1] = gid
  end
  if not more and not with_snapshot then return ran_for end
  return cjson.encode({ state = "COMPLETED", entered = { "COMPLETED" }, changed = true, settledAt = now,
    ranFor = ran_for, more = more, group = with_snapshot and snapshot(k, gid) or nil })
end

local replies, left = {}, skip
for _, token in ipairs(redis.call("LRANGE", wakeups, skip, skip + limit - 1)) do
  if work > MOST_WORK then break end
  local done, reply = pcall(settle_entry, token)
  -- Nobody knows how much was done before the error.
  if not done then work = math.huge end
  -- Redis 7 throws error replies, earlier versions throw texts.
  if not done and type(reply) ~= "table" then reply = redis.error_reply(reply) end
  if type(reply) == "table" then left = left + 1 end
  replies[#replies + 1] = token
  replies[#replies + 1] = reply
end
call_in_batches("ZADD", parked, completed)
if redis.call("LLEN", wakeups) > left then redis.call("ZADD", marker, 0, "0") end
-- BullMQ adds an event for every wake-up and never trims the stream.
redis.call("XTRIM", events, "MAXLEN", "~", 1000)
return replies
