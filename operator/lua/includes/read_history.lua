--[[
  Search the newest events of the queues of some members of groups for what happened to them.

  Returns for each key a table: `added` if the search reached the event with which the member was added,
  `started` if a worker took the member, `value` if it completed, `last` the kind of its last end, and `replaced`
  if somebody added a job with the same id later. What happened to that job is ignored. The search reads at most
  `budget.events`, the same number in each queue, and streams are trimmed: a member whose first event was not
  found may have started.
]]
-- @include split_job_key
local function read_queue(base, history, left, most)
  local last = "+"
  while left > 0 and most > 0 do
    local entries = redis.call("XREVRANGE", base .. "events", last, "-", "COUNT", math.min(most, 1000))
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      -- BullMQ writes the fields in this order: event, jobId, and what belongs to the event.
      local kind, id = entry[2][2], entry[2][4]
      local job = id and history[base .. id]
      if job and not job.added then
        if kind == "added" and entry[2][7] == "group" then
          job.added, left = true, left - 1
        elseif kind == "added" then
          job.started, job.value, job.last, job.replaced = nil, nil, nil, true
        elseif kind == "active" then
          job.started = true
        elseif kind == "completed" then
          job.started, job.value, job.last = true, job.value or entry[2][6], job.last or kind
        elseif kind == "failed" then
          job.last = job.last or kind
        end
      end
    end
    most, last = most - #entries, "(" .. entries[#entries][1]
  end
  return most
end

local function read_history(prefix, keys, budget)
  local history, queues, count = {}, {}, 0
  for _, key in ipairs(keys) do
    local queue = split_job_key(prefix, key)
    local base = prefix .. ":" .. queue .. ":"
    if not queues[base] then queues[base], count = 0, count + 1 end
    queues[base] = queues[base] + 1
    history[key] = {}
  end
  local share = math.floor(budget.events / math.max(count, 1))
  for base, left in pairs(queues) do
    budget.events = budget.events - share + read_queue(base, history, left, share)
  end
  return history
end
