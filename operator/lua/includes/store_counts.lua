--[[
  Store the state and the counts of a settled group, and the status of each member, if they changed.

  `stored` has the counts, the revision, the owner and the time to live as they are stored; a group that has not
  changed since its creation has neither counts nor a revision. `list_statuses` returns a list of the members' keys, each with its
  status.
]]
-- @include call_in_batches
-- @include publish_owner_change
-- @include saga
-- @include set_due
local function store_counts(k, gid, now, before, state, counts, stored, list_statuses)
  local summary = table.concat({ state, counts.completed, counts.failed, counts.cancelled, counts.undos,
    counts.undone, counts.undo_failed }, " ")
  local resolved = counts.resolved or 0
  if resolved > 0 then summary = summary .. " " .. resolved end
  if summary == (stored.counts or "ACTIVE 0 0 0 0 0 0") then return end
  call_in_batches("HSET", k.jobs, list_statuses())
  local fields = {}
  local function add(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if counts.undos > 0 then
    add("undoneCount", counts.undone)
    add("undoFailedCount", counts.undo_failed)
    if resolved > 0 then add("resolvedCount", resolved) end
  end
  if saga.has_ended(state) and state ~= before then
    -- Later than the failure, also if both are in the same millisecond: readers see that the group was compensating.
    local failed_at = before == "COMPENSATING" and tonumber(redis.call("HGET", k.group, "failedAt"))
    local finished = failed_at and math.max(now, failed_at + 1) or now
    add("finishedAt", string.format("%.0f", finished))
    set_due(k, gid, state, finished, stored.ttl)
    -- Also in the pseudo parent, because somebody may delete the group's hash.
    redis.call("HSET", k.parent, "ended", 1)
  end
  redis.call("HSET", k.group, "state", state, "completedCount", counts.completed, "failedCount", counts.failed,
    "counts", summary, "updatedAt", now, "revision", (tonumber(stored.revision) or 1) + 1, unpack(fields))
  publish_owner_change(k, gid, stored.owner)
end
