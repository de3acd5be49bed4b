--[[
  Park a settled group, so that BullMQ puts it on the wake-up list when a member finishes, or put it back on
  the list if work is left.

  Settling and parking are one call: a group parked after its last member finished would never be woken. An
  ended group stays parked until it is removed: a failed member or undo may be retried manually, and BullMQ 6
  removes jobs that are in no list. `token` is the entry of the wake-up list for the group, or empty.
]]
-- @include in_state_since
-- @include names
-- @include state_scores
local function park(k, gid, state, more, token)
  if token ~= "" then redis.call("LREM", k.wakeups, 1, token) end
  if more then
    redis.call("ZREM", k.parked, gid)
    redis.call("RPUSH", k.wakeups, gid)
    redis.call("ZADD", k.marker, 0, "0")
    -- As BullMQ does; read_totals reads here how long a group has been on the list.
    redis.call("XADD", k.wakeup_events, "*", "event", "waiting", "jobId", gid, "prev", "waiting-children")
  else
    local scores, above = state_scores()
    local score = scores[state] + (in_state_since(k.group, state) or 0)
    redis.call("ZADD", k.parked, string.format("%.0f", score), gid)
    if redis.call("EXISTS", k.undo) == 1 then
      redis.call("ZADD", k.parked, string.format("%.0f", score + above), names.undo_id(gid))
    end
  end
end
