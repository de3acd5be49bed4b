--[[
  Search the newest events of a queue for what happened to some members of groups.

  Returns for each id a table: `added` if the search reached the event with which the member was added,
  `started` if a worker took the member, `value` if it completed. The search reads at most `budget.events`, and
  streams are trimmed: a member whose first event was not found may have started. What happened to a job that
  somebody added later with the same id is ignored.
]]
local function read_history(base, ids, budget)
  local history, left, last = {}, #ids, "+"
  for _, id in ipairs(ids) do history[id] = {} end
  while left > 0 and budget.events > 0 do
    local entries = redis.call("XREVRANGE", base .. "events", last, "-", "COUNT", 1000)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      -- BullMQ writes the fields in this order: event, jobId, and what belongs to the event.
      local kind, id = entry[2][2], entry[2][4]
      local job = history[id]
      if job and not job.added then
        if kind == "added" and entry[2][7] == "group" then
          job.added, left = true, left - 1
        elseif kind == "added" then
          job.started, job.value = nil, nil
        elseif kind == "active" then
          job.started = true
        elseif kind == "completed" then
          job.started, job.value = true, job.value or entry[2][6]
        end
      end
    end
    budget.events, last = budget.events - #entries, "(" .. entries[#entries][1]
  end
  return history
end
