--[[
  Return every key that the scripts use for a group. Like BullMQ's own scripts, ours derive keys from a
  prefix: the queues of a group are only known from its keys. `ledger` is the base key of all ledgers.
]]
-- @include names
local function keys_of(prefix, gid, queue)
  local ledger = prefix .. ":_jobgroups"
  local parent = ledger .. ":" .. gid
  local undo = names.undo_id(parent)
  local group = prefix .. ":" .. queue .. ":groups:" .. gid
  return {
    group = group,
    jobs = group .. ":jobs",
    index = prefix .. ":" .. queue .. ":groups",
    events = prefix .. ":" .. queue .. ":events",
    -- The ledger: BullMQ itself moves a member from open to done or failed.
    parent = parent,
    open = parent .. ":dependencies",
    done = parent .. ":processed",
    failed = parent .. ":unsuccessful",
    -- Never exists. A completed member names it as its parent, so that nothing changes its entry in the ledger.
    sealed = parent .. ":sealed",
    -- The ledger of the undos.
    undo = undo,
    undo_open = undo .. ":dependencies",
    undo_done = undo .. ":processed",
    undo_failed = undo .. ":unsuccessful",
    -- Never exists. A resolved undo names it as its parent.
    undo_sealed = undo .. ":sealed",
    -- The undos that people resolved.
    resolved = parent .. ":resolved",
    -- The latest requests of people and programs, such as a cancellation.
    records = parent .. ":records",
    -- What to add to which queue when the group ends.
    on_end = parent .. ":onend",
    -- The wake-up list, and the sorted set from which BullMQ moves a group to that list.
    ledger = ledger,
    parked = ledger .. ":waiting-children",
    wakeups = ledger .. ":wait",
    -- BullMQ writes both when it adds to the wake-up list.
    marker = ledger .. ":marker",
    wakeup_events = ledger .. ":events",
    -- The stream of an owner's changed groups: the name of the owner is appended.
    owner_changes = ledger .. ":changed:",
    -- Groups without an owner that a driver removes after their end. The name needs a colon: BullMQ treats a key
    -- without one as a job, and v6 removes jobs that are in no list.
    released = ledger .. ":saga:released",
    -- When groups reach their deadline, or the end of their time to live.
    due = ledger .. ":saga:due",
    -- The owning queues: their indexes list every group, also one that is in no other key of the ledger.
    queues = ledger .. ":saga:queues",
    tomb = ledger .. ":tomb:" .. gid,
  }
end
