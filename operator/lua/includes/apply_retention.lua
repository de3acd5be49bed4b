--[[
  Do what the members of an ended group ask of retention, as much as one call may.

  While the group ran, all its jobs were kept. Now a job that is not to be kept goes. Where so many, or
  the younger ones, are to be kept, jobs beyond that go too, if they were members of groups that have
  ended: a running group's members and other people's jobs are not ours to remove.

  Returns whether something is left for another call.
]]
local function sweep(k, prefix, now)
  local packed = redis.call("HGET", k.parent, "retention")
  if not packed then return false end
  local asked, looks, trims, trimmed = cmsgpack.unpack(packed), 1000, 2, {}

  local function remove(base, set, id)
    redis.call("ZREM", base .. set, id)
    redis.call("UNLINK", base .. id, base .. id .. ":logs")
  end
  local function trim(base, set, ids)
    for _, id in ipairs(ids) do
      local parent = redis.call("HGET", base .. id, "parentKey") or ""
      if string.sub(parent, 1, #k.books + 1) == k.books .. ":"
        and redis.call("ZSCORE", k.ended, string.sub(parent, #k.books + 2))
        -- One that 5.x retried in bulk stands among the failed until its group is settled.
        and (set == "failed" or redis.call("HEXISTS", parent .. ":processed", base .. id) == 1) then
        remove(base, set, id)
      end
    end
  end

  while #asked > 0 and looks > 0 do
    local queue, id, on_complete, on_fail = unpack(table.remove(asked))
    local base, set, keep = prefix .. ":" .. queue .. ":", "completed", on_complete
    looks = looks - 1
    if not redis.call("ZSCORE", base .. set, id) then set, keep = "failed", on_fail end
    if keep and redis.call("ZSCORE", base .. set, id) then
      local count, age = unpack(keep)
      local rule = table.concat({ base, set, tostring(count), tostring(age) }, " ")
      if count == 0 then
        remove(base, set, id)
      elseif not trimmed[rule] then
        -- Once a call and rule, however many members share it: else each of them walks the set again.
        if trims == 0 then
          asked[#asked + 1] = { queue, id, on_complete, on_fail }
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
