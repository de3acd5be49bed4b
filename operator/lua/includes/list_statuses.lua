--[[
  Return the members of a settled group whose status is known: a list of keys, each with its status.
]]
local function list_statuses(k, state, more)
  local statuses = {}
  local function mark(keys, status)
    for _, key in ipairs(keys) do
      statuses[#statuses + 1] = key
      statuses[#statuses + 1] = status
    end
  end
  mark(redis.call("HKEYS", k.done), "completed")
  mark(redis.call("ZRANGE", k.failed, 0, -1), "failed")
  if state == "COMPENSATING" and not more then mark(redis.call("SMEMBERS", k.open), "active") end
  return statuses
end
