--[[
  Take jobs that are not active out of the lists and sets of one queue. Their own keys stay.

  Walking a long list is expensive. The jobs of a group were pushed together, so the jobs around one that is
  found are overwritten in place, and one LREM removes them all. `together` is the largest distance to
  search; `budget.entries` is the number of list entries that may be walked. Each list is searched from the
  end with the newest jobs, then from the end with the oldest.

  Returns id -> the list or set it was in, and id -> why a job was not found although it may be in a list:
  "later" if another call can find it, "never" if the list is longer than any call can walk.
]]
-- @include list_length
local function take_jobs(base, ids, together, budget)
  local wanted, was, unsure = {}, {}, {}
  for _, id in ipairs(ids) do wanted[id] = true end
  for _, set in ipairs({ "delayed", "prioritized" }) do
    if redis.call("ZCARD", base .. set) > 0 then
      for _, id in ipairs(ids) do
        if not was[id] and redis.call("ZREM", base .. set, id) == 1 then was[id] = set end
      end
    end
  end

  local lengths = { wait = list_length(base .. "wait"), paused = list_length(base .. "paused") }
  local is_long = lengths.wait + lengths.paused > budget.longest

  -- Search one list from one end: direction is 1 from the newest entry, -1 from the oldest. `spare` is the part
  -- of the budget that is left for the searches after it.
  local function search(name, direction, spare)
    local list, length = base .. name, redis.call("LLEN", base .. name)
    local gone, count, furthest = ids[1] .. ":gone", 0, 0
    for _, id in ipairs(ids) do
      if not was[id] then
        local reach = math.max(0, math.min(length, budget.entries - spare))
        local found = reach > 0 and redis.call("LPOS", list, id, "RANK", direction, "MAXLEN", reach)
        local depth = found and (direction == 1 and found + 1 or length - found) or reach
        budget.entries, furthest = budget.entries - depth, math.max(furthest, found and depth or 0)
        if found then
          local first = math.max(found - together, 0)
          for i, entry in ipairs(redis.call("LRANGE", list, first, found + together)) do
            if wanted[entry] and not was[entry] then
              redis.call("LSET", list, first + i - 1, gone)
              was[entry], count = name, count + 1
            end
          end
        elseif reach < length then
          unsure[id] = is_long and "never" or "later"
        end
      end
    end
    if count > 0 then
      redis.call("LREM", list, direction * count, gone)
      budget.entries = budget.entries - furthest
    end
  end
  for n, name in ipairs({ "wait", "paused" }) do
    if lengths[name] > 0 then search(name, 1, is_long and budget.longest * (4 - n) / 4 or 0) end
  end
  for n, name in ipairs(is_long and { "wait", "paused" } or {}) do
    if lengths[name] > 0 then search(name, -1, budget.longest * (2 - n) / 4) end
  end

  for id in pairs(was) do unsure[id] = nil end
  return was, unsure
end
