--[[
  Count the entries of one ledger, after correcting what stock clients leave wrong.

  `ledger` has the keys of the ledger's three parts, the hash of its members, and how many members must be
  in it. Foreign jobs: another producer used our parent; their entries are deleted, as are those of copies of
  cancelled members. Failed jobs that wait, run or have
  completed again: 5.x retried them in bulk, which does not change the ledger. Open jobs without a hash or
  with another parent, and jobs in no part: they were deleted, removed, drained, replaced or obliterated; they
  count as failed.

  Returns the counts, and the keys of the jobs that were missing.
]]
-- @include split_job_key
local function harvest(prefix, ledger, now)
  local function foreign(key)
    local status = redis.call("HGET", ledger.members, key)
    return not status or status == "cancelled"
  end
  for _, key in ipairs(redis.call("SMEMBERS", ledger.open)) do
    if foreign(key) or redis.call("HGET", key, "parentKey") ~= ledger.hash then redis.call("SREM", ledger.open, key) end
  end
  for _, key in ipairs(redis.call("HKEYS", ledger.done)) do
    if foreign(key) then redis.call("HDEL", ledger.done, key) end
  end
  for _, key in ipairs(redis.call("ZRANGE", ledger.failed, 0, -1)) do
    local queue, id = split_job_key(prefix, key)
    local job = redis.call("HMGET", key, "parentKey", "finishedOn", "returnvalue")
    if foreign(key) then
      redis.call("ZREM", ledger.failed, key)
    elseif job[1] == ledger.hash and not job[2] then
      redis.call("ZREM", ledger.failed, key)
      redis.call("SADD", ledger.open, key)
    elseif job[1] == ledger.hash and redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id) then
      redis.call("ZREM", ledger.failed, key)
      redis.call("HSETNX", ledger.done, key, job[3] or "null")
    end
  end
  local function count()
    return {
      open = redis.call("SCARD", ledger.open),
      done = redis.call("HLEN", ledger.done),
      failed = redis.call("ZCARD", ledger.failed),
    }
  end
  local counts, missing = count(), {}
  if counts.open + counts.done + counts.failed < ledger.expected then
    for _, key in ipairs(ledger.list()) do
      if redis.call("SISMEMBER", ledger.open, key) == 0 and redis.call("HEXISTS", ledger.done, key) == 0
        and not redis.call("ZSCORE", ledger.failed, key) and not ledger.adopt(key) then
        redis.call("ZADD", ledger.failed, now, key)
        redis.call("HSET", ledger.hash, "removed:" .. key, 1)
        missing[#missing + 1] = key
      end
    end
    counts = count()
  end
  return counts, missing
end
