--[[
  Add an undo for each member that needs one and has none, as many as the budget allows.

  A member needs one if it completed or, where the mapping of its name says so, if it started at all.
  It leaves the templates with the undo it got, so no member ever gets two. The return value is
  spliced in as the JSON text it is: decoding it here would lose digits.

  Returns how many members it did not get to.
]]
-- @include place_of
-- @include bulk
-- @include open_queue
-- @include add_job
-- @include close_queues
local function make_undos(k, prefix, gid, now, budget)
  local queues, mappings, undos, made, keys, members, left = {}, {}, {}, {}, {}, {}, 0
  local templates = redis.call("HKEYS", k.templates)
  for n, key in ipairs(templates) do
    if budget.undos <= 0 or budget.bytes <= 0 then
      left = #templates - n + 1
      break
    end
    local value = redis.call("HGET", k.done, key)
    local started = not value and (redis.call("HEXISTS", k.parent, "started:" .. key) == 1
      or (redis.call("ZSCORE", k.failed, key) and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0))
    if value or started then
      local original = redis.call("HGET", k.templates, key)
      mappings[original] = mappings[original] or cmsgpack.unpack(redis.call("HGET", k.parent, "undo:" .. original))
      local name, opts, head, tail, from_start = unpack(mappings[original])
      if value or from_start then
        local queue_name, id = place_of(prefix, key)
        local queue = open_queue(queues, prefix, queue_name .. ":compensation")
        local data = head .. id .. '","originalReturnValue":' .. (value or "null") .. tail
        undos[#undos + 1] = { queue, { id = id .. "-undo", name = name, data = data, opts = opts } }
        -- Before the first write: a key of another type there must not leave half of them made.
        redis.call("HLEN", queue.base .. id .. "-undo")
        members[#members + 1] = key
        keys[#keys + 1] = queue.base .. id .. "-undo"
        made[#made + 1] = keys[#keys]
        made[#made + 1] = key
        budget.undos, budget.bytes = budget.undos - 1, budget.bytes - #data
      end
    end
  end

  local family = '{"id":"' .. gid .. '-undo","queueKey":"' .. k.books .. '","fpof":true}'
  for _, undo in ipairs(undos) do add_job(undo[1], undo[2], now, k.undo, family) end
  bulk("HSET", k.undo, made)
  bulk("SADD", k.undo_open, keys)
  bulk("HDEL", k.templates, members)
  if #undos > 0 then redis.call("HINCRBY", k.group, "undoCount", #undos) end
  close_queues(queues)
  return left
end
