--[[
  Return the keys of the undos of a group by the ids of their members.
]]
-- @include ledgers
-- @include split_job_key
local function undos_of(k, prefix)
  local undos = {}
  for _, key in ipairs(ledgers.undos(k, prefix).list()) do
    local _, member = split_job_key(prefix, redis.call("HGET", k.undo, key))
    undos[member] = key
  end
  return undos
end
