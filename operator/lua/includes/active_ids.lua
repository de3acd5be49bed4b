--[[
  Return the ids of a queue's active jobs as a set, read once per call. The list is as long as the
  concurrency of the queue's workers.
]]
local function active_ids(seen, prefix, queue)
  if not seen[queue] then
    local ids = {}
    for _, id in ipairs(redis.call("LRANGE", prefix .. ":" .. queue .. ":active", 0, -1)) do
      ids[id] = true
    end
    seen[queue] = ids
  end
  return seen[queue]
end
