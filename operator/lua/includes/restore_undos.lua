--[[
  Restore the pseudo parent of a group's undos, and what its ledger recorded, if somebody deleted it.
]]
-- @include as_job
-- @include ledgers
-- @include names
-- @include restore_entry
-- @include undo_mappings
local function restore_undos(k, prefix)
  -- A worker that takes the wake-up of a deleted ledger leaves a hash that has only its own fields.
  local was_taken = redis.call("HEXISTS", k.undo, "processedOn") == 1
  local is_lost = redis.call("EXISTS", k.undo) == 0 or (was_taken and #ledgers.undos(k, prefix).list() == 0)
  if not is_lost then return end
  local _, mapping_of = undo_mappings.read(k)
  local group = redis.call("HMGET", k.group, "name", "failedAt")
  for _, key in ipairs(redis.call("HKEYS", k.jobs)) do
    local undo_key = names.job_key(prefix, undo_mappings.target(prefix, key, mapping_of(key)))
    local parent, is_resolved = redis.call("HGET", undo_key, "parentKey"), redis.call("HEXISTS", k.resolved, undo_key) == 1
    if parent == k.undo or is_resolved then
      redis.call("HSET", k.undo, as_job(group[1] or "", group[2] or "0", undo_key, key))
      restore_entry(prefix, undo_key, k.undo, nil, k.undo_open, k.undo_done, k.undo_failed)
    end
  end
end
