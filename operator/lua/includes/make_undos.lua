--[[
  Add an undo for each member that needs one and has none, as many as the budget allows.

  A member needs an undo if it ever completed or, if its mapping asks for that, if it may have started. It is
  deleted from the templates together with adding its undo, so no member gets two. The return value is
  inserted as JSON text: decoding it here would lose digits. `running` are completed members that somebody
  runs again; their undos wait until they have finished.

  Returns the number of members that the budget did not cover.
]]
-- @include names
-- @include family
-- @include outcome_of
-- @include last_values
-- @include split_job_key
-- @include call_in_batches
-- @include open_queue
-- @include add_job
-- @include close_queues
local function make_undos(k, prefix, gid, now, budget, running)
  local queues, mappings, undos, made, keys, members, left = {}, {}, {}, {}, {}, {}, 0
  local function mapping_of(key)
    local name = redis.call("HGET", k.templates, key)
    mappings[name] = mappings[name] or cmsgpack.unpack(redis.call("HGET", k.templates, names.mapping(name)))
    return mappings[name]
  end

  local due, values = {}, {}
  for _, key in ipairs(redis.call("HKEYS", k.templates)) do
    local value, started = nil, false
    if not names.is_mapping(key) then value, started = outcome_of(k, key) end
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
      local queue_name, id = split_job_key(prefix, key)
      local queue = open_queue(queues, prefix, names.undo_queue(queue_name))
      local undo_id = names.undo_id(id)
      local data = mapping.head .. id .. '","originalReturnValue":' .. (values[key] or "null") .. mapping.tail
      undos[#undos + 1] = { queue, { id = undo_id, name = mapping.name, data = data, opts = mapping.opts } }
      -- Fail before the first write if the key has another type.
      redis.call("HLEN", queue.base .. undo_id)
      members[#members + 1] = key
      keys[#keys + 1] = queue.base .. undo_id
      made[#made + 1] = keys[#keys]
      made[#made + 1] = key
      budget.undos, budget.bytes = budget.undos - 1, budget.bytes - #data
    end
  end

  local parent = family(k, names.undo_id(gid))
  for _, undo in ipairs(undos) do add_job(undo[1], undo[2], now, k.undo, parent, {}) end
  call_in_batches("HSET", k.undo, made)
  call_in_batches("SADD", k.undo_open, keys)
  call_in_batches("HDEL", k.templates, members)
  if #undos > 0 then redis.call("HINCRBY", k.group, "undoCount", #undos) end
  close_queues(queues)
  return left
end
