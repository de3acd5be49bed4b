--[[
  Put a settled group where BullMQ will find it, or back on the wake-up list if work is left.

  Take and park are one call: a group parked after its last member ended would never be woken. An ended
  group stays parked until it is removed: a member or undo of one that failed may still be retried by
  hand, and BullMQ 6 removes what nobody lists. Its score keeps it out of the way of a resync. `token` is the entry of the wake-up list that led here, if any did.
]]
local function park(k, gid, now, state, more, token)
  if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
  if more then
    redis.call("ZREM", k.parked, gid)
    redis.call("RPUSH", k.wakeups, gid)
    redis.call("ZADD", k.books .. ":marker", 0, "0")
  else
    local ages = { COMPLETED = 2e15, FAILED = 1e15, FAILED_COMPENSATION = 1e15 }
    local score = now + (ages[state] or 0)
    redis.call("ZADD", k.parked, string.format("%.0f", score), gid)
    if redis.call("EXISTS", k.undo) == 1 then
      redis.call("ZADD", k.parked, string.format("%.0f", score), gid .. "-undo")
    end
  end
  -- BullMQ notes every wake-up here and never trims it.
  redis.call("XTRIM", k.books .. ":events", "MAXLEN", "~", 1000)
end
