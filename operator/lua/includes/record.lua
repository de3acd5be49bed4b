--[[
  Record a request of a person or a program: the verb, when it was accepted, and the given fields that are not
  empty, such as `by`, `job` and `reason`. The latest ten requests are kept.
]]
local MOST_RECORDS = 10

local function record(k, now, verb, fields)
  local entry = { verb = verb, at = now }
  for name, value in pairs(fields) do
    if value ~= "" then entry[name] = value end
  end
  redis.call("RPUSH", k.records, cjson.encode(entry))
  redis.call("LTRIM", k.records, -MOST_RECORDS, -1)
  -- Readers of a group without records need no further command.
  redis.call("HSET", k.group, "recorded", 1)
end
