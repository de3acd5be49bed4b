--[[
  Count the entries of one ledger, after repairing three errors that stock clients cause.

  `ledger` has the keys of the ledger's three parts, the hash of its members, and how many members must be
  in it. Foreign jobs: another producer used our parent; they are deleted. Missing jobs: they were removed,
  drained or obliterated; they cannot have completed, so they count as failed. Completed jobs among the
  failed: 5.x retried them in bulk; the queue has the true state.
]]
-- @include split_job_key
local function delete_foreign(members, key, entries, delete)
  for _, entry in ipairs(entries) do
    if redis.call("HEXISTS", members, entry) == 0 then redis.call(delete, key, entry) end
  end
end

local function harvest(prefix, ledger, now)
  local function count()
    return {
      open = redis.call("SCARD", ledger.open),
      done = redis.call("HLEN", ledger.done),
      failed = redis.call("ZCARD", ledger.failed),
    }
  end
  -- Always, because one foreign job and one removed member leave the sum unchanged.
  delete_foreign(ledger.members, ledger.open, redis.call("SMEMBERS", ledger.open), "SREM")
  delete_foreign(ledger.members, ledger.done, redis.call("HKEYS", ledger.done), "HDEL")
  delete_foreign(ledger.members, ledger.failed, redis.call("ZRANGE", ledger.failed, 0, -1), "ZREM")
  local counts = count()
  if counts.failed > 0 then
    for _, key in ipairs(redis.call("ZRANGE", ledger.failed, 0, -1)) do
      local queue, id = split_job_key(prefix, key)
      if redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id) then
        redis.call("ZREM", ledger.failed, key)
        redis.call("HSETNX", ledger.done, key, redis.call("HGET", key, "returnvalue") or "null")
        counts.failed = redis.call("ZCARD", ledger.failed)
        counts.done = redis.call("HLEN", ledger.done)
      end
    end
  end
  if counts.open + counts.done + counts.failed < ledger.expected then
    for _, key in ipairs(ledger.list()) do
      if redis.call("SISMEMBER", ledger.open, key) == 0 and redis.call("HEXISTS", ledger.done, key) == 0
        and not redis.call("ZSCORE", ledger.failed, key) then
        redis.call("ZADD", ledger.failed, now, key)
        redis.call("HSET", ledger.hash, "removed:" .. key, 1)
        counts.failed = counts.failed + 1
      end
    end
  end
  return counts
end
