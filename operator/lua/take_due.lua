--[[
  Look at groups whose deadline or time to live has passed: find those to cancel, and remove those that have ended.
  A call removes at most 60 jobs. A failed compensation is never removed: a person has to act. A group with work
  left keeps its entry.

  KEYS[1] due        zset of the times when groups reach their deadline or the end of their time to live
  ARGV[1] prefix     BullMQ's key prefix
  ARGV[2] cursor     the last group of the page before, or empty
  ARGV[3] score      its score, or 0
  ARGV[4] limit      how many groups to look at
  ARGV[5] remembers  milliseconds a tombstone is kept

  Returns  JSON:
           overdue  ids of the running groups to cancel
           removed  ids of the groups that were removed
           cursor   where the next page begins, or empty if this is the last page
           score    the score of the cursor
]]
-- @include find_group
-- @include has_work_left
-- @include is_gone
-- @include names
-- @include now_ms
-- @include page_of
-- @include remove_part
-- @include saga
local due, prefix, cursor, score = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, remembers = tonumber(ARGV[4]), ARGV[5]

local now = now_ms()
local budget = { jobs = 60, entries = 300000, longest = 300000, events = 2000 }
local overdue, removed = {}, {}

-- Return whether jobs of the group are left for another call.
local function take(gid)
  local k, problem = find_group(names.job_key(prefix, "_jobgroups", gid), prefix, gid)
  if problem then
    if problem == "GROUPNOTFOUND" and is_gone(k, prefix, gid) then redis.call("ZREM", due, gid) end
    return false
  end
  local group = redis.call("HMGET", k.group, "state", "finishedAt", "ttlSeconds", "deadlineSeconds", "resolvedCount",
    "onEndLeft")
  local state, finished, ttl = group[1], tonumber(group[2]), tonumber(group[3])
  if state == "ACTIVE" and group[4] then
    overdue[#overdue + 1] = gid
  elseif not saga.has_ended(state) or state == "FAILED_COMPENSATION" or not finished or not ttl then
    -- Its next end adds it again, if it has a time to live.
    redis.call("ZREM", due, gid)
  elseif finished + ttl * 1000 > now then
    redis.call("ZADD", due, string.format("%.0f", finished + ttl * 1000), gid)
  elseif not has_work_left(k, state, group[5], group[6]) then
    -- A group is some work, too.
    budget.jobs = budget.jobs - 1
    if budget.jobs <= 0 or remove_part(k, prefix, gid, now, remembers, budget) then return true end
    removed[#removed + 1] = gid
  end
  return false
end

local page, last = page_of(due, cursor, score, now + 1, limit)
for _, entry in ipairs(page) do
  cursor, score = entry.member, entry.score
  -- review_groups finds a group that cannot be read.
  local ok, left = pcall(take, entry.member)
  if ok and left then
    -- The next page begins with this group.
    score, last = entry.score - 1, false
    break
  end
end
return cjson.encode({ overdue = overdue, removed = removed, cursor = last and "" or cursor,
  score = string.format("%.0f", score) })
