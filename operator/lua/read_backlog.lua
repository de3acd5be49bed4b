--[[
  Read what waits in each of these queues, all at one moment; what is wrong with one holds up no other.

  KEYS[1] marker  any key of the prefix, so that the call can be routed
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] queues  packed {queue, horizon} of each; what is due within so many milliseconds counts as due

  Returns  of each queue {known, paused, waiting, prioritized, active, delayed, due, next, event}, or a text
           that says why it cannot be read: next is the milliseconds until the first delayed job is due that
           is not yet, event is the id of the newest event
]]
local prefix, queues = ARGV[1], cmsgpack.unpack(ARGV[2])
-- By Redis' own clock: an operator whose clock is wrong would wake nobody in time.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function read(base, horizon)
  -- The low 12 bits of a score keep the order within a millisecond.
  local last = string.format("%.0f", (now + horizon) * 4096 + 4095)
  local first = redis.call("ZRANGEBYSCORE", base .. "delayed", "(" .. last, "+inf", "WITHSCORES", "LIMIT", 0, 1)
  local event = redis.call("XREVRANGE", base .. "events", "+", "-", "COUNT", 1)[1]
  return {
    redis.call("EXISTS", base .. "meta", base .. "events"),
    redis.call("HEXISTS", base .. "meta", "paused"),
    -- 5.x moves the list when it pauses, later versions leave it where it is.
    redis.call("LLEN", base .. "wait") + redis.call("LLEN", base .. "paused"),
    redis.call("ZCARD", base .. "prioritized"),
    redis.call("LLEN", base .. "active"),
    redis.call("ZCARD", base .. "delayed"),
    redis.call("ZCOUNT", base .. "delayed", "-inf", last),
    first[2] and string.format("%.0f", math.floor(first[2] / 4096) - now) or "",
    event and event[1] or "0-0",
  }
end

local answers = {}
for n, asked in ipairs(queues) do
  local ok, answer = pcall(read, prefix .. ":" .. asked[1] .. ":", asked[2])
  -- Redis 7 throws tables, earlier ones texts.
  answers[n] = ok and answer or type(answer) == "table" and answer.err or tostring(answer)
end
return answers
