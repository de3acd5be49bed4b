--[[
  Put a settled group where BullMQ will find it, or back on the wake-up list if work is left.

  Take and park are one call: a group parked after its last member ended would never be woken. An ended
  group stays parked until it is removed: a member or undo of one that failed may still be retried by
  hand, and BullMQ 6 removes what nobody lists. `token` is the entry of the wake-up list that led here,
  if any did.
]]
-- @include bands
local function park(k, gid, state, more, token)
  local events = k.books .. ":events"
  if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
  if more then
    redis.call("ZREM", k.parked, gid)
    redis.call("RPUSH", k.wakeups, gid)
    redis.call("ZADD", k.books .. ":marker", 0, "0")
    -- As BullMQ does: since when a group has been on the list is read from here.
    redis.call("XADD", events, "*", "event", "waiting", "jobId", gid, "prev", "waiting-children")
  else
    local since = redis.call("HGET", k.group, state == "COMPENSATING" and "failedAt" or "createdAt")
    local places, above = bands()
    local score = places[state] + (since or 0)
    redis.call("ZADD", k.parked, string.format("%.0f", score), gid)
    if redis.call("EXISTS", k.undo) == 1 then
      redis.call("ZADD", k.parked, string.format("%.0f", score + above), gid .. "-undo")
    end
  end
  -- BullMQ notes every wake-up here and never trims it.
  redis.call("XTRIM", events, "MAXLEN", "~", 1000)
end
