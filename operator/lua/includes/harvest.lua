--[[
  Read one ledger, and put right the three things that stock clients get wrong in it.

  `book` names the three keys of the ledger and the hash that knows who belongs there, and counts and
  lists who must stand in it. A job that was given our parent by somebody else does not belong: it is
  struck out. One that was removed, drained or obliterated stands nowhere: it never completed, so it
  counts as failed. One that 5.x retried in bulk and that then completed still stands among the failed:
  its queue knows better.
]]
-- @include place_of
local function strike_strangers(names, key, entries, strike)
  for _, entry in ipairs(entries) do
    if redis.call("HEXISTS", names, entry) == 0 then redis.call(strike, key, entry) end
  end
end

local function harvest(prefix, book, now)
  local function count()
    return {
      open = redis.call("SCARD", book.open),
      done = redis.call("HLEN", book.done),
      failed = redis.call("ZCARD", book.failed),
    }
  end
  -- Always: a stranger and a removed member together leave the sum as it should be.
  strike_strangers(book.names, book.open, redis.call("SMEMBERS", book.open), "SREM")
  strike_strangers(book.names, book.done, redis.call("HKEYS", book.done), "HDEL")
  strike_strangers(book.names, book.failed, redis.call("ZRANGE", book.failed, 0, -1), "ZREM")
  local counts = count()
  if counts.failed > 0 then
    for _, key in ipairs(redis.call("ZRANGE", book.failed, 0, -1)) do
      local queue, id = place_of(prefix, key)
      if redis.call("ZSCORE", prefix .. ":" .. queue .. ":completed", id) then
        redis.call("ZREM", book.failed, key)
        redis.call("HSETNX", book.done, key, redis.call("HGET", key, "returnvalue") or "null")
        counts.failed = redis.call("ZCARD", book.failed)
        counts.done = redis.call("HLEN", book.done)
      end
    end
  end
  if counts.open + counts.done + counts.failed < book.expected then
    for _, key in ipairs(book.list()) do
      if redis.call("SISMEMBER", book.open, key) == 0 and redis.call("HEXISTS", book.done, key) == 0
        and not redis.call("ZSCORE", book.failed, key) then
        redis.call("ZADD", book.failed, now, key)
        redis.call("HSET", book.hash, "removed:" .. key, 1)
        counts.failed = counts.failed + 1
      end
    end
  end
  return counts
end
