--[[
  Return the id of the member that failed first, the reason, cut to 1,024 bytes of whole characters, and
  the number of attempts.
]]
-- @include split_job_key
local function first_failure(k, prefix)
  local key = redis.call("ZRANGE", k.failed, 0, 0)[1]
  if not key then return "", "", "0" end
  local _, id = split_job_key(prefix, key)
  if redis.call("HEXISTS", k.parent, "removed:" .. key) == 1 then return id, "removed from its queue", "0" end
  local reason = redis.call("HGET", key, "failedReason") or "unknown: its queue no longer has the job"
  if #reason > 1024 then
    local cut = 1024
    while cut > 0 and string.byte(reason, cut + 1) >= 128 and string.byte(reason, cut + 1) < 192 do
      cut = cut - 1
    end
    reason = string.sub(reason, 1, cut)
  end
  return id, reason, redis.call("HGET", key, "atm") or "0"
end
