--[[
  Have BullMQ remove a job when it fails. Members and undos are stored with the option set to false.
]]
local function remove_on_fail(key)
  local opts = redis.call("HGET", key, "opts") or "{}"
  redis.call("HSET", key, "opts", (string.gsub(opts, '"removeOnFail":false', '"removeOnFail":true')))
end
