--[[
  Remove ended groups that have no resource and are old enough, page by page; one call removes at most 60 jobs.

  KEYS[1] parked     zset of the parked groups
  ARGV[1] prefix     BullMQ's key prefix
  ARGV[2] state      the state of the groups: COMPLETED, FAILED or FAILED_COMPENSATION
  ARGV[3] age        milliseconds since their end
  ARGV[4] spare      1 to spare groups with a time to live of their own and groups with work left, else 0
  ARGV[5] dry        1 to remove nothing, else 0
  ARGV[6] cursor     the last group of the page before, or empty
  ARGV[7] score      its score, or 0
  ARGV[8] limit      how many groups to look at
  ARGV[9] remembers  milliseconds a tombstone is kept

  Returns  JSON:
           groups  ids of the groups that were removed, or would be
           owned   how many groups were skipped, because a resource owns them
           cursor  where the next page begins, or empty if this is the last page
           score   the score of the cursor
]]
-- @include formats
-- @include has_work_left
-- @include is_before
-- @include keys_of
-- @include names
-- @include now_ms
-- @include page_of
-- @include remove_part
-- @include state_scores
local parked, prefix, state, age = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local spare, dry, limit, remembers = ARGV[4] == "1", ARGV[5] == "1", tonumber(ARGV[8]), ARGV[9]
local cursor, score = ARGV[6], tonumber(ARGV[7])

local now = now_ms()
local budget = { jobs = 60, entries = 300000, longest = 300000, events = 2000 }
local groups, owned = {}, 0

-- Return whether jobs of the group are left for another call.
local function prune(gid)
  local parent = names.job_key(prefix, "_jobgroups", gid)
  local found = redis.call("HMGET", parent, "queue", "format", "owner")
  if not found[1] or formats.is_newer(found[2]) then return false end
  if found[3] and found[3] ~= names.headless then
    owned = owned + 1
    return false
  end
  local k = keys_of(prefix, gid, found[1])
  local group = redis.call("HMGET", k.group, "state", "ttlSeconds", "resolvedCount", "onEndLeft")
  if group[1] ~= state then return false end
  if spare and (group[2] or has_work_left(k, state, group[3], group[4])) then return false end
  if not dry then
    -- A group is some work, too.
    budget.jobs = budget.jobs - 1
    if budget.jobs <= 0 or remove_part(k, prefix, gid, now, remembers, budget) then return true end
  end
  groups[#groups + 1] = gid
  return false
end

local lowest, above = state_scores()
lowest = lowest[state]
local page, last = page_of(parked, cursor, math.max(score, lowest), lowest + math.min(above, now - age + 1), limit)
local after = { member = cursor, score = score }
for _, entry in ipairs(page) do
  -- After a group that was removed, a page begins with the first group of the same millisecond.
  local is_new = after.member == "" or is_before(after, entry)
  -- review_groups finds a group that cannot be read.
  local ok, left = pcall(is_new and prune or tostring, entry.member)
  if ok and left == true then
    -- The next page begins with this group.
    if cursor == "" then cursor, score = entry.member, entry.score - 1 end
    last = false
    break
  end
  cursor, score = entry.member, entry.score
end
return cjson.encode({ groups = groups, owned = owned, cursor = last and "" or cursor,
  score = string.format("%.0f", score) })
