--[[
  Settle one group and park it.

  KEYS[1] parent   hash, the pseudo parent of the group's members
  ARGV[1] prefix   BullMQ's key prefix
  ARGV[2] gid      id of the group
  ARGV[3] queue    its owning queue, or empty; needed if the pseudo parent is gone
  ARGV[4] request  empty, or the reason to cancel a running group: DeadlineExceeded
  ARGV[5] grace    milliseconds after which an active member without a worker is given up

  Returns  nothing if there is no such group, or JSON:
           changed     whether the group's revision changed
           more        whether work is left for another call; the group is then on the wake-up list
           open        how many members can still finish
           repaired    whether the group moved on although nothing would have woken it
           before      its state before the call
           undone      how many undos completed since the last call
           undoFailed  how many undos failed since the last call
           failedQueues  queues with failed jobs of the group, if this call ended it
           group       snapshot
  Errors   NEWERFORMAT
]]
-- @include settle_and_park
local prefix, gid, queue, request, grace = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

return settle_and_park(prefix, gid, queue, "", request, grace)
