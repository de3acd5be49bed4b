--[[
  Apply removeOnComplete and removeOnFail of the members of an ended group, up to a limit per call.

  While a group runs, all its jobs are kept. After its end, a job that is not to be kept is removed. A rule
  with a count or an age also removes older jobs of the queue, but only members of ended groups: members of
  running groups and jobs of other producers are never removed. A rule looks at up to 1,000 jobs beyond its count,
  and as many beyond its age.

  Returns whether work is left for another call, and how much work this call did, in units of 3 microseconds.
]]
-- @include belongs
-- @include formats
-- @include job_keys
local PAGE, MOST_CHECKS = 1000, 1000
-- The most work of one call that trims sets. It suffices for a rule that finds nothing to remove, so a call that leaves
-- its first rule unfinished has removed jobs.
local MOST_TRIMMING, REMOVAL = 2 * PAGE, 3

local function apply_retention(k, prefix, gid, now)
  local written = redis.call("HGET", k.parent, "retention")
  if not written then return false, 0 end
  local asked, checks, trimming, trimmed, unfinished = cjson.decode(written), 0, 0, {}, {}

  local function remove(base, set, id)
    redis.call("ZREM", base .. set, id)
    redis.call("UNLINK", job_keys(base .. id))
  end
  -- Look at up to `left` jobs; return at how many another call has to look.
  local function trim(base, set, ids, left)
    for _, id in ipairs(ids) do
      if left == 0 or trimming >= MOST_TRIMMING then return left end
      left, trimming = left - 1, trimming + 1
      local parent = redis.call("HGET", base .. id, "parentKey") or ""
      if string.sub(parent, 1, #k.ledger + 1) == k.ledger .. ":" then
        -- The parent of a completed member is a key of its group.
        local gid = string.match(parent, "^[^:]+", #k.ledger + 2)
        local group = k.ledger .. ":" .. gid
        local found = redis.call("HMGET", group, "ended", "format")
        if found[1] and not formats.is_newer(found[2])
          -- A job that 5.x retried in bulk is in the failed part of the ledger until its group is settled.
          and (set == "failed" or redis.call("HEXISTS", group .. ":processed", base .. id) == 1) then
          remove(base, set, id)
          trimming = trimming + REMOVAL
        end
      end
    end
    return 0
  end
  local function apply_rule(base, set, rule, left)
    local ids = rule.count and redis.call("ZREVRANGE", base .. set, rule.count, rule.count + PAGE - 1) or {}
    if rule.age then
      local until_ms = now - rule.age * 1000
      for _, id in ipairs(redis.call("ZRANGEBYSCORE", base .. set, "-inf", until_ms, "LIMIT", 0, PAGE)) do
        ids[#ids + 1] = id
      end
    end
    return trim(base, set, ids, left)
  end

  while #asked > 0 and checks < MOST_CHECKS do
    local entry = table.remove(asked)
    local base, id = prefix .. ":" .. entry.queue .. ":", entry.id
    -- A rule that is unfinished goes on, although it may have removed this job.
    local set = entry.unfinished or (redis.call("ZSCORE", base .. "completed", id) and "completed" or "failed")
    local keep = entry[set == "failed" and "on_fail" or "on_complete"]
    checks = checks + 1
    if keep and (entry.unfinished or redis.call("ZSCORE", base .. set, id)) then
      local rule = table.concat({ base, set, tostring(keep.count), tostring(keep.age) }, " ")
      if keep.count == 0 then
        -- Another producer may have added a job with this id.
        if belongs(k, gid, base .. id) then remove(base, set, id) end
      elseif not trimmed[rule] then
        -- Once per call and rule, although many members may share a rule: each trim walks the set.
        trimmed[rule] = true
        local left = apply_rule(base, set, keep, entry.left or (keep.count and PAGE or 0) + (keep.age and PAGE or 0))
        if left > 0 then
          entry.unfinished, entry.left = set, left
          unfinished[#unfinished + 1] = entry
        end
      end
    end
  end
  -- The last entry is the first of the next call.
  for n = #unfinished, 1, -1 do asked[#asked + 1] = unfinished[n] end
  if #asked > 0 then
    redis.call("HSET", k.parent, "retention", cjson.encode(asked))
  else
    redis.call("HDEL", k.parent, "retention")
  end
  return #asked > 0, 2 * checks + trimming
end
