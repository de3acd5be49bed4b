--[[
  Add an undo for each member that needs one and has none, as many as the budget allows.

  A member needs one if it completed or, where its template says so, if it started at all. The
  template goes away with the undo it became, so no member ever gets two. The return value is spliced
  in as the JSON text it is: decoding it here would lose digits.

  Returns how many are still to be made.
]]
-- @include place_of
-- @include open_queue
-- @include add_job
local function make_undos(k, prefix, gid, now, budget)
  local queues, to_make = {}, 0
  local family = '{"id":"' .. gid .. '-undo","queueKey":"' .. k.books .. '","fpof":true}'
  for _, key in ipairs(redis.call("HKEYS", k.templates)) do
    local size = redis.call("HSTRLEN", k.done, key)
    local completed = size > 0
    local started = not completed and (redis.call("HEXISTS", k.parent, "started:" .. key) == 1
      or (redis.call("ZSCORE", k.failed, key) and redis.call("HEXISTS", k.parent, "removed:" .. key) == 0))
    if completed or started then
      local name, opts, head, tail, from_start = unpack(cmsgpack.unpack(redis.call("HGET", k.templates, key)))
      if completed or from_start then
        if budget.jobs <= 0 or budget.bytes <= 0 then
          to_make = to_make + 1
        else
          local value = completed and redis.call("HGET", k.done, key) or "null"
          local queue_name, id = place_of(prefix, key)
          local queue = open_queue(queues, prefix, queue_name .. ":compensation")
          local undo_key = queue.base .. id .. "-undo"
          redis.call("HSET", k.undo, undo_key, key)
          redis.call("SADD", k.undo_open, undo_key)
          add_job(queue, { id = id .. "-undo", name = name, data = head .. value .. tail, opts = opts,
            delay = 0, priority = 0 }, now, k.undo, family)
          redis.call("HDEL", k.templates, key)
          redis.call("HINCRBY", k.group, "undoCount", 1)
          budget.jobs, budget.bytes = budget.jobs - 1, budget.bytes - size - #tail
        end
      end
    end
  end
  return to_make
end
