--[[
  Put a settled group where BullMQ will find it, or back on the wake-up list if work is left.

  Take and park are one call: a group parked after its last member ended would never be woken. A group
  that failed stays parked for ever, for a member or undo may still be retried by hand; its score keeps
  it out of the way of a resync. `token` is the entry of the wake-up list that led here, if any did.
]]
local function park(k, gid, now, state, more, token)
  if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
  if more then
    redis.call("ZREM", k.parked, gid)
    redis.call("RPUSH", k.wakeups, gid)
    redis.call("ZADD", k.books .. ":marker", 0, "0")
  elseif state == "COMPLETED" then
    redis.call("ZREM", k.parked, gid)
  else
    local running = state == "ACTIVE" or state == "COMPENSATING"
    local score = running and now or now + 1e15
    redis.call("ZADD", k.parked, string.format("%.0f", score), gid)
    if redis.call("EXISTS", k.undo) == 1 then
      redis.call("ZADD", k.parked, string.format("%.0f", score), gid .. "-undo")
    end
  end
  -- BullMQ notes every wake-up here and never trims it.
  redis.call("XTRIM", k.books .. ":events", "MAXLEN", "~", 1000)
end
