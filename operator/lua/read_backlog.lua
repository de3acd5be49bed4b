--[[
  Read the backlog of several queues at one moment. An error concerns one queue alone.

  KEYS[1] marker  any key with the prefix, to route the call
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] queues  msgpack, list of {queue, horizon}: a job that is due within horizon milliseconds counts as due

  Returns  for each queue an error reply if it cannot be read, or JSON:
           known, paused                               whether the queue exists, whether it is paused
           waiting, prioritized, active, delayed, due  numbers of jobs
           event                                       id of the newest event
           nextIn                                      milliseconds until the first delayed job is due
                                                       that is not due yet; left out if there is none
]]
local prefix, queues = ARGV[1], cmsgpack.unpack(ARGV[2])
-- The clock of Redis, because the clock of the operator may be wrong.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function read(base, horizon)
  -- The low 12 bits of a score order the jobs of one millisecond.
  local last = string.format("%.0f", (now + horizon) * 4096 + 4095)
  local first = redis.call("ZRANGEBYSCORE", base .. "delayed", "(" .. last, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  local event = redis.call("XREVRANGE", base .. "events", "+", "-", "COUNT", 1)[1]
  return cjson.encode({
    known = redis.call("EXISTS", base .. "meta", base .. "events") > 0,
    paused = redis.call("HEXISTS", base .. "meta", "paused") > 0,
    -- 5.x moves the list when it pauses, later versions leave it where it is.
    waiting = redis.call("LLEN", base .. "wait") + redis.call("LLEN", base .. "paused"),
    prioritized = redis.call("ZCARD", base .. "prioritized"),
    active = redis.call("LLEN", base .. "active"),
    delayed = redis.call("ZCARD", base .. "delayed"),
    due = redis.call("ZCOUNT", base .. "delayed", "-inf", last),
    event = event and event[1] or "0-0",
    nextIn = first[2] and math.floor(first[2] / 4096) - now or nil,
  })
end

local replies = {}
for n, asked in ipairs(queues) do
  local ok, reply = pcall(read, prefix .. ":" .. asked.queue .. ":", asked.horizon)
  -- Redis 7 throws error replies, earlier versions throw texts.
  replies[n] = (ok or type(reply) == "table") and reply or redis.error_reply(reply)
end
return replies
