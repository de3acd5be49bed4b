--[[
  Read new events of queues for hints that members were removed or retried manually, which wakes no driver.

  KEYS[1] marker  any key with the prefix, to route the call
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] queues  msgpack, list of {queue, after}: events after an id; an empty id only finds the newest event
  ARGV[3] limit   how many events of each queue to read

  Returns  for each queue an error reply if it cannot be read, or JSON:
           last    id of the last event that was read
           groups  ids of the groups whose jobs the events name
           more    whether more events are left
]]
-- @include names
local prefix, queues, limit = ARGV[1], cmsgpack.unpack(ARGV[2]), tonumber(ARGV[3])

local checked = {}
local function group_of(id)
  local gid = names.group_of_job(id)
  if gid and checked[gid] == nil then
    checked[gid] = redis.call("EXISTS", names.job_key(prefix, "_jobgroups", gid)) == 1
  end
  return gid and checked[gid] and gid
end

local function read(events, after)
  if after == "" then
    local newest = redis.call("XREVRANGE", events, "+", "-", "COUNT", 1)[1]
    return { last = newest and newest[1] or "0-0", groups = {}, more = false }
  end
  local entries = redis.call("XRANGE", events, "(" .. after, "+", "COUNT", limit)
  local hints = { last = after, groups = {}, more = #entries == limit }
  for _, entry in ipairs(entries) do
    -- The fields are in this order: event, jobId and prev.
    local kind, id, prev = entry[2][2], entry[2][4], entry[2][6]
    hints.last = entry[1]
    if id and (kind == "removed" or (kind == "waiting" and (prev == "completed" or prev == "failed"))) then
      hints.groups[#hints.groups + 1] = group_of(id) or nil
    end
  end
  return hints
end

local replies = {}
for n, asked in ipairs(queues) do
  local ok, reply = pcall(read, names.job_key(prefix, asked.queue, "events"), asked.after)
  if ok then
    replies[n] = cjson.encode(reply)
  else
    -- Redis 7 throws error replies, earlier versions throw texts.
    replies[n] = type(reply) == "table" and reply or redis.error_reply(reply)
  end
end
return replies
