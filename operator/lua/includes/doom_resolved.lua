--[[
  Doom the undos that people resolved, as far as their hashes are left: a worker that takes one fails it and does not
  run it, and BullMQ removes it then. Each is sealed: retrying it changes nothing in the ledger, where it stays failed.

  Returns how many undos are resolved.
]]
-- @include belongs
-- @include remove_on_fail
local function doom_resolved(k, gid)
  local count = 0
  for _, key in ipairs(redis.call("HKEYS", k.resolved)) do
    if redis.call("HEXISTS", k.undo_done, key) == 0 then
      count = count + 1
      if redis.call("SREM", k.undo_open, key) == 1 or not redis.call("ZSCORE", k.undo_failed, key) then
        redis.call("ZADD", k.undo_failed, 0, key)
      end
      local job = redis.call("HMGET", key, "parentKey", "opts", "defa")
      -- Somebody may have removed it from its parent.
      local is_ours = job[1] == k.undo or (not job[1] and belongs(k, gid, key))
      if is_ours or (job[1] == k.undo_sealed and not job[3]) then
        redis.call("HSET", key, "parentKey", k.undo_sealed, "opts", remove_on_fail(job[2]), "defa", "the undo was resolved")
      end
    end
  end
  return count
end
