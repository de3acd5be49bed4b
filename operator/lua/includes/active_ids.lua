--[[
  Return the ids at work in a queue as a set, read once a call. The list is as long as the queue's
  workers are concurrent.
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
