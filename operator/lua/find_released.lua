--[[
  Find groups that were released and have ended, except those whose compensation failed: a person has to act
  on these.

  KEYS[1] released  zset of the groups that a driver removes after their end
  ARGV[1] prefix    BullMQ's key prefix
  ARGV[2] cursor    the last group of the page before, or empty
  ARGV[3] score     its score, or 0
  ARGV[4] limit     how many groups to look up

  Returns  JSON:
           ended   id of each group to remove -> its resource, or empty
           cursor  the last group of this page, or empty if it is the last page
           score   its score
]]
-- @include find_group
-- @include has_work_left
-- @include is_gone
-- @include names
-- @include page_of
-- @include saga
local released, prefix, cursor, score, limit = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local ended = {}
local function look_up(gid)
  local k, problem = find_group(names.job_key(prefix, "_jobgroups", gid), prefix, gid)
  if problem == "GROUPNOTFOUND" and is_gone(k, prefix, gid) then redis.call("ZREM", released, gid) end
  if problem then return end
  local group = redis.call("HMGET", k.group, "state", "resource", "resolvedCount", "onEndLeft")
  local state = group[1]
  if not saga.has_ended(state) or state == "FAILED_COMPENSATION" then return end
  if not has_work_left(k, state, group[3], group[4]) then ended[gid] = group[2] or "" end
end

local page, last = page_of(released, cursor, score, math.huge, limit)
for _, entry in ipairs(page) do
  cursor, score = entry.member, entry.score
  -- review_groups finds a group that cannot be read.
  pcall(look_up, entry.member)
end
return cjson.encode({ ended = ended, cursor = last and "" or cursor, score = tostring(score) })
