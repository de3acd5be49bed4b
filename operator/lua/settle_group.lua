--[[
  Settle one group and park it.

  KEYS[1] parent    hash, the pseudo parent of the group's members
  ARGV[1] prefix    BullMQ's key prefix
  ARGV[2] gid       id of the group
  ARGV[3] queue     its owning queue, or empty; needed if the pseudo parent is gone
  ARGV[4] request   empty, or the reason to cancel a running group: DeadlineExceeded
  ARGV[5] grace     milliseconds after which an active member without a worker is given up
  ARGV[6] snapshot  1 to return a snapshot of the group, else 0

  Returns  nothing if there is no such group, or JSON:
           state       its state after the call
           entered     the states that it entered in this call, in order
           changed     whether the group's revision changed
           settledAt   the time of this call
           ranFor      for how many milliseconds the group ran, if this call ended it for the first time
           more        whether work is left for another call; the group is then on the wake-up list
           open        how many members can still finish
           repaired    whether the group moved on although nothing would have woken it
           undone      how many undos completed since the last call
           undoFailed  how many undos failed since the last call
           failedQueues  queues with failed jobs of the group, if this call ended it
           group       snapshot, if asked for
  Errors   NEWERFORMAT
]]
-- @include settle_and_park
local prefix, gid, queue, request, grace, snapshot_asked =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6] == "1"

return settle_and_park(prefix, gid, queue, "", request, grace, snapshot_asked)
