--[[
  Remove jobs that are not active from one queue, with all their keys.

  Walking a long list is expensive. The jobs of a group were pushed together, so the jobs around one that is
  found are overwritten in place, and one LREM removes them all. `together` is the largest distance to
  search; `budget.entries` is the number of list entries that may be walked.

  Returns id -> the list or set it was in, and whether the budget was sufficient to search for all ids.
]]
-- @include call_in_batches
local function drop_jobs(base, ids, together, budget)
  local wanted, was, known = {}, {}, true
  for _, id in ipairs(ids) do wanted[id] = true end
  for _, set in ipairs({ "delayed", "prioritized" }) do
    if redis.call("ZCARD", base .. set) > 0 then
      for _, id in ipairs(ids) do
        if not was[id] and redis.call("ZREM", base .. set, id) == 1 then was[id] = set end
      end
    end
  end
  for _, list in ipairs({ "wait", "paused" }) do
    local length, gone, count = redis.call("LLEN", base .. list), ids[1] .. ":gone", 0
    for _, id in ipairs(length > 0 and ids or {}) do
      if not was[id] then
        known = known and budget.entries > 0
        local found = known and redis.call("LPOS", base .. list, id)
        if known then budget.entries = budget.entries - length end
        if found then
          local first = math.max(found - together, 0)
          for i, entry in ipairs(redis.call("LRANGE", base .. list, first, found + together)) do
            if wanted[entry] and not was[entry] then
              redis.call("LSET", base .. list, first + i - 1, gone)
              was[entry], count = list, count + 1
            end
          end
        end
      end
    end
    if count > 0 then
      redis.call("LREM", base .. list, count, gone)
      budget.entries = budget.entries - length
    end
  end
  local doomed = {}
  for _, id in ipairs(ids) do
    if was[id] then
      doomed[#doomed + 1] = base .. id
      doomed[#doomed + 1] = base .. id .. ":logs"
      redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", was[id])
    end
  end
  if doomed[1] then call_in_batches("UNLINK", doomed[1], doomed) end
  return was, known
end
