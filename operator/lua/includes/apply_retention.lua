--[[
  Apply removeOnComplete and removeOnFail of the members of an ended group, up to a limit per call.

  While a group runs, all its jobs are kept. After its end, a job that is not to be kept is removed. A rule
  with a count or an age also removes older jobs of the queue, but only members of ended groups: members of
  running groups and jobs of other producers are never removed.

  Returns whether work is left for another call.
]]
-- @include belongs
-- @include formats
-- @include job_keys
local function apply_retention(k, prefix, gid, now)
  local packed = redis.call("HGET", k.parent, "retention")
  if not packed then return false end
  local asked, checks, trims, trimmed = cmsgpack.unpack(packed), 1000, 2, {}

  local function remove(base, set, id)
    redis.call("ZREM", base .. set, id)
    redis.call("UNLINK", job_keys(base .. id))
  end
  local function trim(base, set, ids)
    for _, id in ipairs(ids) do
      local parent = redis.call("HGET", base .. id, "parentKey") or ""
      if string.sub(parent, 1, #k.ledger + 1) == k.ledger .. ":" then
        -- The parent of a completed member is a key of its group.
        local gid = string.match(parent, "^[^:]+", #k.ledger + 2)
        local group = k.ledger .. ":" .. gid
        if redis.call("ZSCORE", k.ended, gid) and not formats.is_newer(redis.call("HGET", group, "format"))
          -- A job that 5.x retried in bulk is in the failed part of the ledger until its group is settled.
          and (set == "failed" or redis.call("HEXISTS", group .. ":processed", base .. id) == 1) then
          remove(base, set, id)
        end
      end
    end
  end

  while #asked > 0 and checks > 0 do
    local entry = table.remove(asked)
    local base, id = prefix .. ":" .. entry.queue .. ":", entry.id
    local set, keep = "completed", entry.on_complete
    checks = checks - 1
    if not redis.call("ZSCORE", base .. set, id) then set, keep = "failed", entry.on_fail end
    if keep and redis.call("ZSCORE", base .. set, id) then
      local count, age = keep.count, keep.age
      local rule = table.concat({ base, set, tostring(count), tostring(age) }, " ")
      if count == 0 then
        -- Another producer may have added a job with this id.
        if belongs(k, gid, base .. id) then remove(base, set, id) end
      elseif not trimmed[rule] then
        -- Once per call and rule, although many members may share a rule: each trim walks the set.
        if trims == 0 then
          asked[#asked + 1] = entry
          break
        end
        trimmed[rule], trims = true, trims - 1
        if count then trim(base, set, redis.call("ZREVRANGE", base .. set, count, count + 999)) end
        if age then
          trim(base, set, redis.call("ZRANGEBYSCORE", base .. set, "-inf", now - age * 1000, "LIMIT", 0, 1000))
        end
      end
    end
  end
  if #asked > 0 then
    redis.call("HSET", k.parent, "retention", cmsgpack.pack(asked))
  else
    redis.call("HDEL", k.parent, "retention")
  end
  return #asked > 0
end
