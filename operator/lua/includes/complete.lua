--[[
  Complete a group whose ledger has nothing but its members, all of them completed. Most groups end this way.
  settle.lua leaves the same keys with three times as many commands: it looks for all that people and other
  clients may have done. The caller parks the group.

  Returns nothing if this is another group, which settle.lua has to settle. Else its keys, for how many
  milliseconds it ran, whether work is left for another call, and how much work this call did, in units of 3
  microseconds.
]]
-- @include keys_of
-- @include formats
-- @include names
-- @include saga
-- @include mark_members
-- @include publish_group_event
-- @include store_counts
-- @include apply_retention
-- The keys of more members do not fit into one command.
local MAX_COMPLETED = 1000

local function complete(prefix, gid, now)
  local parent = names.job_key(prefix, "_jobgroups", gid)
  local books = redis.call("HMGET", parent, "queue", "format", "requested", "owner", "retention")
  if not books[1] or formats.is_newer(books[2]) or books[3] then return end
  local k = keys_of(prefix, gid, books[1])
  local group = redis.call("HMGET", k.group, "state", "totalJobs", "name", "createdAt", "counts", "revision",
    "cancelledCount", "ttlSeconds", "onEnd")
  -- It has onEnd, members are open or have failed, it is being removed, or a foreign worker took the entry of its undos.
  if group[1] ~= "ACTIVE" or group[9] or redis.call("EXISTS", k.open, k.failed, k.tomb, k.undo) > 0 then return end
  local done, total, created = redis.call("HKEYS", k.done), tonumber(group[2]), tonumber(group[4])
  local state = saga.next_state(group[1], { total = total, completed = #done, failed = 0 })
  if state ~= "COMPLETED" or total > MAX_COMPLETED or not created or not group[3] or not group[7] then return end
  -- Another producer used our parent: its job may take the place of a missing member.
  for _, status in ipairs(redis.call("HMGET", k.jobs, unpack(done))) do
    if not status or status == "cancelled" then return end
  end

  mark_members(k, done)
  publish_group_event(k, "completed", gid, group[3])
  store_counts(k, gid, now, group[1], state,
    { completed = total, failed = 0, cancelled = group[7], undos = 0, undone = 0, undo_failed = 0 },
    { counts = group[5], revision = group[6], owner = books[4], ttl = group[8] },
    function()
      local statuses = {}
      for n, key in ipairs(done) do statuses[2 * n - 1], statuses[2 * n] = key, "completed" end
      return statuses
    end)
  local more, retention_work = false, 0
  if books[5] then more, retention_work = apply_retention(k, prefix, gid, now) end
  return k, now - created, more, 4 + total + retention_work
end
