--[[
  Restore the pseudo parent of a group's undos, which somebody deleted, and what its ledger recorded.
]]
-- @include names
-- @include split_job_key
-- @include restore_entry
local function restore_undos(k, prefix)
  for _, key in ipairs(redis.call("HKEYS", k.jobs)) do
    local queue, id = split_job_key(prefix, key)
    local undo_key = names.job_key(prefix, names.undo_queue(queue), names.undo_id(id))
    if redis.call("EXISTS", undo_key) == 1 then
      redis.call("HSET", k.undo, undo_key, key)
      restore_entry(prefix, undo_key, "", k.undo_open, k.undo_done, k.undo_failed)
    end
  end
end
