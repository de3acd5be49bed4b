--[[
  Add an undo for each member that needs one and has none, as many as the budget allows.

  A member needs an undo if it ever completed or, if its mapping asks for that, if it may have started. Its mapping
  is closed together with adding its undo, so no member gets two. `running` are completed members that somebody runs
  again; their undos wait until they have finished.

  If the mappings were deleted with the group's hash, the undo is only listed, not added: it counts as failed.

  Returns the number of members that the budget did not cover.
]]
-- @include names
-- @include family
-- @include as_job
-- @include outcome_of
-- @include last_values
-- @include undo_mappings
-- @include split_job_key
-- @include call_in_batches
-- @include open_queue
-- @include add_job
-- @include close_queues
-- @include undo_job
local function make_undos(k, prefix, gid, now, budget, running)
  local queues, undos, made, keys, closed, left = {}, {}, {}, {}, {}, 0
  local members, mapping_of = undo_mappings.read(k)

  local due, values = {}, {}
  for _, key in ipairs(members) do
    local value, started = outcome_of(k, key)
    if started and not running[key] and (value or mapping_of(key).from_start) then
      due[#due + 1] = key
      if #due <= budget.undos then values[key] = value end
    end
  end

  values = last_values(k, prefix, values, budget)
  for _, key in ipairs(due) do
    if budget.undos <= 0 or budget.bytes <= 0 then
      left = left + 1
    else
      local mapping = mapping_of(key)
      local _, id = split_job_key(prefix, key)
      local undo_queue, undo_id = undo_mappings.target(prefix, key, mapping)
      local undo_key = names.job_key(prefix, undo_queue, undo_id)
      if not mapping.is_lost then
        local undo = undo_job(gid, id, mapping, values[key])
        undos[#undos + 1] = { open_queue(queues, prefix, undo_queue), undo }
        -- Fail before the first write if the key has another type.
        redis.call("HLEN", undo_key)
        keys[#keys + 1] = undo_key
        budget.bytes = budget.bytes - #undo.data
      end
      closed[#closed + 1] = key
      made[#made + 1] = undo_key
      made[#made + 1] = key
      budget.undos = budget.undos - 1
    end
  end

  local parent = family(k, names.undo_id(gid))
  for _, undo in ipairs(undos) do add_job(undo[1], undo[2], now, k.undo, parent, {}) end
  if #made > 0 and redis.call("HEXISTS", k.undo, "name") == 0 then
    redis.call("HSET", k.undo, as_job(redis.call("HGET", k.group, "name") or gid, now))
  end
  call_in_batches("HSET", k.undo, made)
  call_in_batches("SADD", k.undo_open, keys)
  undo_mappings.close(k, closed)
  if #closed > 0 then redis.call("HINCRBY", k.group, "undoCount", #closed) end
  close_queues(queues)
  return left
end
