--[[
  Restore the pseudo parent of a group's undos, and what its ledger recorded, if somebody deleted it.
]]
-- @include ledgers
-- @include names
-- @include split_job_key
-- @include restore_entry
local function restore_undos(k, prefix)
  -- A worker that takes the wake-up of a deleted ledger leaves a hash that has only its own fields.
  local was_taken = redis.call("HEXISTS", k.undo, "processedOn") == 1
  local is_lost = redis.call("EXISTS", k.undo) == 0 or (was_taken and #ledgers.undos(k, prefix).list() == 0)
  if not is_lost then return end
  for _, key in ipairs(redis.call("HKEYS", k.jobs)) do
    local queue, id = split_job_key(prefix, key)
    local undo_key = names.job_key(prefix, names.undo_queue(queue), names.undo_id(id))
    if redis.call("HGET", undo_key, "parentKey") == k.undo then
      redis.call("HSET", k.undo, undo_key, key)
      restore_entry(prefix, undo_key, k.undo, nil, k.undo_open, k.undo_done, k.undo_failed)
    end
  end
end
