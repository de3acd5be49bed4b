--[[
  Name every key of a group. Like BullMQ's own scripts, ours derive keys from a prefix: a group's
  queues are only known from its books.
]]
local function keys_of(prefix, gid, queue)
  local books = prefix .. ":_jobgroups"
  local parent = books .. ":" .. gid
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
    -- Undos that may still have to be made, and the ledger of those made.
    templates = parent .. ":undos",
    undo = parent .. "-undo",
    undo_open = parent .. "-undo:dependencies",
    undo_done = parent .. "-undo:processed",
    undo_failed = parent .. "-undo:unsuccessful",
    -- The wake-up list, and where a group waits to be put on it.
    books = books,
    parked = books .. ":waiting-children",
    wakeups = books .. ":wait",
    -- With a colon of its own: to BullMQ a name without one is a job, and v6 removes those nobody lists.
    ended = books .. ":saga:ended",
    tomb = books .. ":tomb:" .. gid,
  }
end
