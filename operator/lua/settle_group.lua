--[[
  Settle one group and park it. A driver calls this for every wake-up.

  KEYS[1] parent   hash, the pseudo parent of the group's members
  ARGV[1] now      milliseconds since the epoch
  ARGV[2] prefix   BullMQ's key prefix
  ARGV[3] gid      id of the group
  ARGV[4] token    the entry of the wake-up list for the group, or empty
  ARGV[5] request  empty, or the reason to cancel a running group: DeadlineExceeded
  ARGV[6] grace    milliseconds after which an active member without a worker is given up

  Returns  nothing if there is no such group, or JSON:
           changed     whether the group's revision changed
           more        whether work is left for another call; the group is then on the wake-up list
           open        how many members have not finished
           repaired    whether the group moved on although nothing would have woken it
           before      its state before the call
           undone      how many undos completed since the last call
           undoFailed  how many undos failed since the last call
           group       snapshot
]]
-- @include keys_of
-- @include names
-- @include settle
-- @include park
-- @include snapshot
local parent, now, prefix, gid, token, request, grace =
  KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if not queue or redis.call("EXISTS", k.group) == 0 then
  redis.call("LREM", k.wakeups, 1, token)
  redis.call("ZREM", k.parked, gid, names.undo_id(gid))
  return false
end
local function counts() return redis.call("HMGET", k.group, "revision", "undoCount", "undoneCount", "undoFailedCount") end
local was = counts()
local state, before, more, open = settle(k, prefix, gid, now, request, grace)
local is = counts()
local repaired = token == "" and request == "" and (state ~= before or was[2] ~= is[2])
  and not redis.call("LPOS", k.wakeups, gid) and not redis.call("LPOS", k.wakeups, names.undo_id(gid))
park(k, gid, state, more, token)
return cjson.encode({
  changed = was[1] ~= is[1],
  more = more,
  open = open,
  repaired = repaired,
  before = before,
  undone = (is[3] or 0) - (was[3] or 0),
  undoFailed = (is[4] or 0) - (was[4] or 0),
  group = snapshot(k, gid),
})
