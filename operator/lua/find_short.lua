--[[
  Find groups whose ledger has fewer jobs than it must have: a stock client removed, drained or cleaned some.
  Only the sizes of the ledgers are read, so this finds a removal much sooner than review_groups does.

  KEYS[1] parked  zset of the parked groups
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] state   the state whose groups are checked
  ARGV[3] cursor  the last group of the page before, or empty
  ARGV[4] score   its score, or 0
  ARGV[5] limit   how many groups to check

  Returns  JSON:
           due     ids of the groups to settle
           cursor  the last group of this page, or empty if it is the last page
           score   its score
]]
-- @include formats
-- @include names
-- @include page_of
-- @include state_scores
local parked, prefix, state, cursor, score, limit =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function size(ledger)
  return redis.call("SCARD", ledger .. ":dependencies") + redis.call("HLEN", ledger .. ":processed")
    + redis.call("ZCARD", ledger .. ":unsuccessful")
end

local function is_short(gid)
  local parent = names.job_key(prefix, "_jobgroups", gid)
  local found = redis.call("HMGET", parent, "queue", "format", "members")
  if not found[1] or formats.is_newer(found[2]) then return false end
  -- All members are open: this is so in most groups, and needs no further look.
  local all_open = state == "ACTIVE" and found[3] and redis.call("SCARD", parent .. ":dependencies") >= #found[3]
  if all_open then return false end
  local group = redis.call("HMGET", names.job_key(prefix, found[1], "groups:" .. gid),
    "totalJobs", "cancelledCount", "undoCount")
  if not group[1] then return false end
  local undos = tonumber(group[3] or 0)
  return size(parent) < group[1] - (group[2] or 0)
    or (undos > 0 and size(names.job_key(prefix, "_jobgroups", names.undo_id(gid))) < undos)
end

local due = {}
local scores, above = state_scores()
local page, last = page_of(parked, cursor, math.max(score, scores[state]), scores[state] + above, limit)
for _, entry in ipairs(page) do
  cursor, score = entry.member, entry.score
  local ok, short = pcall(is_short, entry.member)
  -- review_groups finds a group that cannot be read.
  if ok and short then due[#due + 1] = entry.member end
end
return cjson.encode({ due = due, cursor = last and "" or cursor, score = tostring(score) })
