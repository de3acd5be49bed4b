--[[
  Read the return values of the members that completed, in the order of the definition, a page at a time.

  KEYS[1] parent  hash, the pseudo parent of the group's members
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     id of the group
  ARGV[3] first   the place of the first member to look at, counted from 0
  ARGV[4] limit   how many values to read
  ARGV[5] bytes   how many bytes of values to read, and at least one value

  Returns  nothing if there is no such group, or JSON:
           results  a list of objects: jobId, queueName, name, which is empty if the queue no longer has the job,
                    and value, which is JSON
           next     the place of the first member of the next page, or -1 if this is the last page
  Errors   NEWERFORMAT
]]
-- @include find_group
-- @include names
-- @include split_job_key
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]
local first, limit, bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local k, problem = find_group(parent, prefix, gid)
if problem == "NEWERFORMAT" then return redis.error_reply("NEWERFORMAT " .. gid) end
if problem then return false end

local members, highest = {}, -1
for _, key in ipairs(redis.call("HKEYS", k.jobs)) do
  local place = names.index_of(key)
  members[place], highest = key, math.max(highest, place)
end
local results, rest = {}, -1
for place = first, highest do
  local key = members[place]
  local value = key and redis.call("HGET", k.done, key)
  if value then
    if #results >= limit or (#results > 0 and #value > bytes) then
      rest = place
      break
    end
    local queue, id = split_job_key(prefix, key)
    -- Another producer may have written a key of another type.
    local name = redis.call("TYPE", key).ok == "hash" and redis.call("HGET", key, "name") or ""
    results[#results + 1] = { jobId = id, queueName = queue, name = name, value = value }
    bytes = bytes - #value
  end
end
return cjson.encode({ results = results, next = rest })
