--[[
  Settle the first groups of the wake-up list and park them. One call finds out which groups were woken and
  settles them. An idle driver sends it behind a command that blocks until a worker adds to the list: Redis then
  runs it before the worker can start another job.

  A group that cannot be settled stays on the list; `skip` is how many entries to pass over.

  KEYS[1] wakeups  list of the groups to settle
  ARGV[1] prefix   BullMQ's key prefix
  ARGV[2] skip     how many entries of the list to pass over
  ARGV[3] limit    how many entries to settle; fewer if the groups are large
  ARGV[4] grace    milliseconds after which an active member without a worker is given up

  Returns  for each entry: the entry, and the reply of settle_group.lua or an error reply, such as NEWERFORMAT
]]
-- @include settle_and_park
-- @include names
local wakeups, prefix, skip, limit, grace =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- A call that settles large groups settles fewer of them, so that it does not block Redis for long.
local MAX_MEMBERS = 300

local replies, members = {}, 0
for _, token in ipairs(redis.call("LRANGE", wakeups, skip, skip + limit - 1)) do
  if members > MAX_MEMBERS then break end
  local done, reply, total = pcall(settle_and_park, prefix, names.group_of_wakeup(token), "", token, "", grace)
  -- Redis 7 throws error replies, earlier versions throw texts.
  if not done and type(reply) ~= "table" then reply = redis.error_reply(reply) end
  replies[#replies + 1] = token
  replies[#replies + 1] = reply
  members = members + (total or 0)
end
return replies
