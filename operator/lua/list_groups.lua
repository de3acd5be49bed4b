--[[
  List a page of the groups in a state, the oldest first, at most `limit` of those that are parked.

  A group on the wake-up list is in its state until it is settled, so it is listed too, in addition, on the page on
  which it would be if it were parked. If the list is long, because no driver follows, its groups come first, from its
  end to its begin: drivers take entries from the begin, which then only moves entries towards pages that follow.

  KEYS[1] parked   zset of the parked groups
  KEYS[2] wakeups  list of the groups to settle
  ARGV[1] prefix   BullMQ's key prefix
  ARGV[2] state    the state
  ARGV[3] age      for how many milliseconds a group must have been in the state, or -1
  ARGV[4] name     the name of the groups, or empty
  ARGV[5] queue    their owning queue, or empty
  ARGV[6] owner    their owner, or empty
  ARGV[7] limit    how many groups to list
  ARGV[8] phase    that of the page before: empty, woken, parked or merged
  ARGV[9] cursor   the last parked group of the page before, or empty
  ARGV[10] score   its score, or how many entries of the wake-up list are left, or 0

  Returns  JSON:
           groups  the ids of the groups
           phase   of this page, or empty if it is the last page
           cursor  the last parked group of this page, or empty
           score   its score, or how many entries of the wake-up list are left
]]
-- @include in_state_since
-- @include is_before
-- @include names
-- @include now_ms
-- @include page_of
-- @include state_scores
local parked, wakeups, prefix, state, age = KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3])
local name, queue, owner, limit = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local phase, cursor, score = ARGV[8], ARGV[9], tonumber(ARGV[10])

local MOST, LONG = 1000, 500
local scores, above = state_scores()
local lowest = scores[state]
above = lowest + (age >= 0 and math.min(above, now_ms() - age + 1) or above)
local has_filters = name .. queue .. owner ~= ""

local function is_wanted(gid)
  if not has_filters then return true end
  local found = redis.call("HMGET", names.job_key(prefix, "_jobgroups", gid), "queue", "owner")
  return found[1] and (queue == "" or found[1] == queue) and (owner == "" or (found[2] or names.headless) == owner)
    and (name == "" or redis.call("HGET", names.job_key(prefix, found[1], "groups:" .. gid), "name") == name)
end
-- A group that cannot be read is not listed if a filter asks for what is unknown.
local function matches(gid)
  local ok, wanted = pcall(is_wanted, gid)
  return ok and wanted
end
-- Return the score with which a group of the wake-up list would be parked, if it is in the state.
local function place_of(gid)
  local owning = redis.call("HGET", names.job_key(prefix, "_jobgroups", gid), "queue")
  local group = owning and names.job_key(prefix, owning, "groups:" .. gid)
  if not group or redis.call("HGET", group, "state") ~= state or redis.call("ZSCORE", parked, gid) then return nil end
  local place = lowest + (in_state_since(group, state) or 0)
  return place < above and matches(gid) and place or nil
end

-- Return the groups among entries of the wake-up list that are in the state, with their places.
local function woken_among(first, last)
  local woken, seen = {}, {}
  for _, entry in ipairs(redis.call("LRANGE", wakeups, first, last)) do
    local gid = names.group_of_wakeup(entry)
    local ok, place = pcall(place_of, gid)
    if ok and place and not seen[gid] then woken[#woken + 1] = { member = gid, score = place } end
    seen[gid] = true
  end
  return woken
end

local groups = {}
local function reply(next_phase, next_cursor, next_score)
  return cjson.encode({ groups = groups, phase = next_phase, cursor = next_cursor, score = tostring(next_score) })
end
local length = redis.call("LLEN", wakeups)
if phase == "" then
  phase = length > LONG and "woken" or "merged"
  score = phase == "woken" and length or 0
end
if phase == "woken" then
  local first = math.max(0, score - math.min(limit, MOST))
  for _, each in ipairs(score > 0 and woken_among(first, score - 1) or {}) do groups[#groups + 1] = each.member end
  if first > 0 then return reply("woken", "", first) end
  return reply("parked", "", 0)
end

local page, last = page_of(parked, cursor, math.max(score, lowest), above, has_filters and MOST or limit)
local listed, before = {}, cursor ~= "" and { member = cursor, score = score }
for n, each in ipairs(page) do
  if matches(each.member) then listed[#listed + 1] = each end
  cursor, score = each.member, each.score
  if #listed == limit then
    last = last and n == #page
    break
  end
end
if phase == "merged" then
  for _, each in ipairs(woken_among(0, LONG - 1)) do
    local is_reached = last or not is_before({ member = cursor, score = score }, each)
    if is_reached and (not before or is_before(before, each)) then listed[#listed + 1] = each end
  end
  table.sort(listed, is_before)
end
for n, each in ipairs(listed) do groups[n] = each.member end
return reply(last and "" or phase, last and "" or cursor, score)
