--[[
  Put groups back on the wake-up list that a foreign client took from it. A stock worker on the pseudo queue
  takes groups as if they were jobs, and 5.x moves the list when somebody pauses the pseudo queue.

  KEYS[1] wakeups  list of the groups to settle
  ARGV[1] prefix   BullMQ's key prefix
  ARGV[2] limit    how many groups to put back

  Returns  JSON:
           groups   ids of the groups that were put back
           workers  the names of the workers that had taken them, as far as they are known
           paused   whether somebody had paused the pseudo queue
]]
-- @include keys_of
-- @include names
local wakeups, prefix, limit = KEYS[1], ARGV[1], tonumber(ARGV[2])

local k = keys_of(prefix, "", "")
local base = k.ledger .. ":"
local groups, workers, known = {}, {}, {}

local function take(ids, command, key)
  for _, id in ipairs(ids) do
    local worker = redis.call("HGET", base .. id, "pb")
    if worker and not known[worker] then
      known[worker] = true
      workers[#workers + 1] = worker
    end
    redis.call("UNLINK", base .. id .. ":lock")
    redis.call("SREM", base .. "stalled", id)
    if command == "LREM" then redis.call(command, key, 1, id) else redis.call(command, key, id) end
    redis.call("RPUSH", wakeups, id)
    groups[#groups + 1] = id
  end
end
for _, list in ipairs({ "active", "paused" }) do
  take(redis.call("LRANGE", base .. list, 0, limit - 1), "LREM", base .. list)
end
for _, set in ipairs({ "completed", "failed", "delayed", "prioritized" }) do
  take(redis.call("ZRANGE", base .. set, 0, limit - 1), "ZREM", base .. set)
end
local paused = redis.call("HDEL", base .. "meta", "paused") == 1
if #groups > 0 or (paused and redis.call("LLEN", wakeups) > 0) then redis.call("ZADD", k.marker, 0, "0") end
return cjson.encode({ groups = groups, workers = workers, paused = paused })
