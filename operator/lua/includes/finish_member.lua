--[[
  Finish a pending member that was taken out of its queue, and leave the keys and the events that a worker leaves
  which takes the job and finishes it at once. Workers that are idle need no wake-up.

  `was` is the list or set that the member was in, `outcome` is completed or failed, and `text` is the return value as
  JSON, or the reason. A failure is final whatever attempts remain, as if the worker had thrown an
  UnrecoverableError.

  `finish_member.check` fails before the first write if a key that finishing writes has another type.
]]
local finish_member = {}

function finish_member.check(k, base, key, outcome)
  redis.call("HLEN", key)
  redis.call("XLEN", base .. "events")
  redis.call("ZCARD", base .. outcome)
  redis.call("HLEN", base .. "meta")
  redis.call("LLEN", base .. "active")
  redis.call("ZCARD", k.parked)
  redis.call("LLEN", k.wakeups)
  redis.call("ZCARD", k.marker)
  redis.call("XLEN", k.wakeup_events)
end

-- Put the group on the wake-up list, as BullMQ does with a parent.
local function wake_group(k, gid)
  redis.call("ZREM", k.parked, gid)
  redis.call("RPUSH", k.wakeups, gid)
  if redis.call("HEXISTS", k.ledger .. ":meta", "paused") == 0 then redis.call("ZADD", k.marker, 0, "0") end
  redis.call("XADD", k.wakeup_events, "*", "event", "waiting", "jobId", gid, "prev", "waiting-children")
end

local function write_ledger(k, gid, key, outcome, text, now)
  redis.call("SREM", k.open, key)
  local is_parked = redis.call("ZSCORE", k.parked, gid)
  if outcome == "completed" then
    redis.call("HSET", k.done, key, text)
    if is_parked and redis.call("SCARD", k.open) == 0 then wake_group(k, gid) end
    return
  end
  redis.call("ZADD", k.failed, now, key)
  redis.call("HSET", k.parent, "defa", "child " .. key .. " failed")
  if is_parked then wake_group(k, gid) end
end

-- Return the stack traces of a job, as JSON, with one more.
local function add_trace(key, reason, opts)
  local ok, traces = pcall(cjson.decode, redis.call("HGET", key, "stacktrace") or "[]")
  if not ok or type(traces) ~= "table" then traces = {} end
  traces[#traces + 1] = "UnrecoverableError: " .. reason
  local most = tonumber(string.match(opts, '"stackTraceLimit":(%d+)') or #traces)
  while #traces > most do table.remove(traces, 1) end
  return #traces > 0 and cjson.encode(traces) or "[]"
end

function finish_member.finish(k, gid, base, id, was, outcome, text, now)
  local key, events = base .. id, base .. "events"
  local opts = redis.call("HGET", key, "opts") or "{}"
  if was == "delayed" then
    redis.call("XADD", events, "*", "event", "waiting", "jobId", id, "prev", "delayed")
    redis.call("HSET", key, "delay", 0)
  end
  redis.call("XADD", events, "*", "event", "active", "jobId", id, "prev", "waiting")
  redis.call("HSET", key, "processedOn", now)
  redis.call("HINCRBY", key, "ats", 1)
  local has_failed = outcome == "failed"
  if has_failed then redis.call("HSET", key, "stacktrace", add_trace(key, text, opts)) end

  redis.call("HSETNX", base .. "meta", "opts.maxLenEvents", 10000)
  redis.call("XTRIM", events, "MAXLEN", "~", redis.call("HGET", base .. "meta", "opts.maxLenEvents"))
  write_ledger(k, gid, key, outcome, text, now)
  local attempts = redis.call("HINCRBY", key, "atm", 1)
  local field = has_failed and "failedReason" or "returnvalue"
  redis.call("ZADD", base .. outcome, now, id)
  redis.call("HSET", key, field, text, "finishedOn", now)
  if has_failed then redis.call("HDEL", key, "defa") end
  redis.call("XADD", events, "*", "event", outcome, "jobId", id, field, text, "prev", "active")
  if has_failed and attempts >= tonumber(string.match(opts, '"attempts":(%d+)') or 0) then
    redis.call("XADD", events, "*", "event", "retries-exhausted", "jobId", id, "attemptsMade", attempts)
  end

  -- A worker would look for its next job now, and find none.
  if redis.call("EXISTS", base .. "wait", base .. "prioritized") > 0
    or redis.call("HEXISTS", base .. "meta", "paused") == 1 then return end
  redis.call("UNLINK", base .. "pc")
  if redis.call("EXISTS", base .. "delayed", base .. "active") == 0 then
    redis.call("XADD", events, "*", "event", "drained")
  end
end
