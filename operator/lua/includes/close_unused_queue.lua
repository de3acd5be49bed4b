--[[
  Delete the keys of a queue that only groups have used and that has no job left. BullMQ counts the jobs that
  its own producers add in `id`. Its Node clients add fields to `meta`, which is kept then.

  The events are kept if the newest ones name another group that exists: they show whether a job that
  disappeared had started. `budget.events` limits how many are read.
]]
-- @include names
local function close_unused_queue(k, gid, base, budget)
  local used = redis.call("EXISTS", base .. "id", base .. "wait", base .. "paused", base .. "active", base .. "delayed",
    base .. "prioritized", base .. "waiting-children", base .. "completed", base .. "failed", base .. "repeat",
    base .. "groups")
  if used > 0 or budget.events <= 0 then return end
  local checked = { [gid] = true }
  for _, entry in ipairs(redis.call("XREVRANGE", base .. "events", "+", "-", "COUNT", 500)) do
    budget.events = budget.events - 1
    local other = names.group_of_job(entry[2][4] or "")
    if other and not checked[other] then
      checked[other] = true
      if redis.call("EXISTS", k.ledger .. ":" .. other) == 1 then return end
    end
  end
  redis.call("UNLINK", base .. "events", base .. "marker", base .. "pc", base .. "stalled-check", base .. "stalled")
  redis.call("HDEL", base .. "meta", "groups")
  local meta = redis.call("HGETALL", base .. "meta")
  if #meta == 2 and meta[1] == "opts.maxLenEvents" and meta[2] == "10000" then redis.call("UNLINK", base .. "meta") end
end
