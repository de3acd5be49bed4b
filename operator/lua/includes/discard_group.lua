--[[
  Delete the keys of a group and leave a tombstone. Its jobs are left in their queues.

  The keys are deleted first: a full Redis refuses a write that needs memory, unless the script has already
  written.
]]
-- @include names
-- @include owned_keys
local function discard_group(k, gid, queue, now, remembers)
  redis.call("UNLINK", unpack(owned_keys(k)))
  -- In a long list, an entry is not searched: drivers drop it when they come to it.
  local is_long = redis.call("LLEN", k.wakeups) > 1000
  for _, token in ipairs({ gid, names.undo_id(gid) }) do
    redis.call("ZREM", k.parked, token)
    if not is_long then redis.call("LREM", k.wakeups, 0, token) end
  end
  redis.call("ZREM", k.released, gid)
  redis.pcall("ZREM", k.due, gid)
  redis.call("ZREM", k.index, gid)
  if redis.call("ZCARD", k.index) == 0 then redis.call("SREM", k.queues, queue) end
  redis.call("SET", k.tomb, now, "PX", remembers)
end
