--[[
  Return the list for a new job: the one that the client that paused the queue will look for it in.

  BullMQ up to 5 moves `wait` to `paused` when it pauses, adds to `paused`, and moves it back when it resumes, which
  destroys `wait`. Later versions use `wait` alone. If neither list exists, the version that created the
  queue's last Node client decides. No list suits a fleet in which both kinds pause one queue.
]]
-- @include list_length
local function waiting_list(base, paused, version)
  if not paused then return base .. "wait" end
  if list_length(base .. "paused") > 0 then return base .. "paused" end
  if redis.call("EXISTS", base .. "wait") == 0 and string.match(version or "", "^bullmq[^:]*:[1-5]%.") then
    return base .. "paused"
  end
  return base .. "wait"
end
