--[[
  Move one group on and park it: what the driver calls for every wake-up.

  KEYS[1] parent   hash, the group's pseudo parent
  ARGV[1] now      milliseconds since the epoch
  ARGV[2] prefix   BullMQ's key prefix
  ARGV[3] gid      the group
  ARGV[4] token    the entry of the wake-up list that led here, or nothing
  ARGV[5] request  nothing, or why a running group is to be given up: DeadlineExceeded
  ARGV[6] grace    milliseconds an active member may be without its worker while compensating

  Returns  {changed, more, open, repaired, before, undone, undo_failed, snapshot}, or nothing if there is
           no such group; repaired means that it had to move on and that nobody would have woken it,
           before is the state it was in, and of undos those are counted that ended since
]]
-- @include keys_of
-- @include settle
-- @include park
-- @include snapshot
local parent, now, prefix, gid, token, request, grace =
  KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local queue = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue or "")
if not queue or redis.call("EXISTS", k.group) == 0 then
  redis.call("LREM", k.wakeups, 1, token)
  redis.call("ZREM", k.parked, gid, gid .. "-undo")
  return false
end
local function look() return redis.call("HMGET", k.group, "revision", "undoCount", "undoneCount", "undoFailedCount") end
local was = look()
local state, before, more, open = settle(k, prefix, gid, now, request, grace)
local is = look()
local repaired = token == "" and request == "" and (state ~= before or was[2] ~= is[2])
  and not redis.call("LPOS", k.wakeups, gid) and not redis.call("LPOS", k.wakeups, gid .. "-undo")
park(k, gid, state, more, token)
return { was[1] ~= is[1] and 1 or 0, more and 1 or 0, open, repaired and 1 or 0, before,
  (is[3] or 0) - (was[3] or 0), (is[4] or 0) - (was[4] or 0), snapshot(k, gid) }
