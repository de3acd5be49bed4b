--[[
  Review one page of the parked groups of a state, and find those that a driver must settle although nothing
  woke them: a wake-up was lost, or somebody removed or retried jobs. On the way, correct what other clients
  do to the queues of groups.

  KEYS[1] parked     zset of the parked groups
  ARGV[1] now        milliseconds since the epoch
  ARGV[2] prefix     BullMQ's key prefix
  ARGV[3] state      the state whose groups are reviewed
  ARGV[4] cursor     the last group of the page before, or empty
  ARGV[5] score      its score, or 0
  ARGV[6] limit      how many groups to review; fewer if they are large
  ARGV[7] remembers  milliseconds a tombstone is kept
  ARGV[8] short      how long a list may be so that its ids are read

  Returns  JSON:
           due        ids of the groups to settle
           discarded  ids of the ended groups that were deleted, because their owning queue was
           queues     the queues in which the reviewed groups have open or failed jobs or undos
           cursor     the last group of this page, or empty if it is the last page
           score      its score
]]
-- @include find_group
-- @include names
-- @include page_of
-- @include saga
-- @include state_scores
-- @include needs_settling
-- @include restore_due
-- @include restore_failed_undos
-- @include release_jobs
-- @include discard_group
local parked, now, prefix, state, cursor, score, limit, remembers, short =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])

-- A page of large groups, or of groups in many queues, is shorter, so that it does not block Redis for long.
local budget = { members = 500, entries = 300000, ids = 30000, released = 5000, short = short }
local scores, above = state_scores()
local queues, seen, known = {}, {}, {}
local due, discarded = {}, {}

-- Return whether a queue is the one to which its groups were added. Obliterating it deletes our mark, which a
-- later queue of this name lacks.
local function exists(queue)
  if known[queue] == nil then
    known[queue] = redis.call("HEXISTS", names.job_key(prefix, queue, "meta"), "groups") == 1
  end
  return known[queue]
end

-- Return whether a group must be settled.
local function review(gid)
  local parent = names.job_key(prefix, "_jobgroups", gid)
  local queue = redis.call("HGET", parent, "queue")
  local k, problem = find_group(parent, prefix, gid)
  if problem == "NEWERFORMAT" then return false end
  -- A failed compensation is kept: a person has to act.
  if saga.has_ended(state) and queue and (problem or (state ~= "FAILED_COMPENSATION" and not exists(queue))) then
    discard_group(k, gid, queue, now, remembers)
    discarded[#discarded + 1] = gid
    return false
  end
  if problem then return true end
  local stored = { "state", "totalJobs", "cancelledCount", "completedCount", "undoCount", "undoFailedCount", "createdAt",
    "resolvedCount", "onEndLeft", "retrying", "ttlSeconds", "finishedAt", "deadlineSeconds" }
  local group = {}
  for n, value in ipairs(redis.call("HMGET", k.group, unpack(stored))) do group[stored[n]] = value or nil end
  -- A settle that met an error changed the state, and did not park the group.
  if group.state ~= state then return true end
  -- removeOrphanedJobs of BullMQ 6 deletes the index.
  if redis.call("ZADD", k.index, "NX", group.createdAt, gid) == 1 then redis.call("SADD", k.queues, queue) end
  if group.ttlSeconds or group.deadlineSeconds then restore_due(k, gid, group) end
  if group.onEndLeft or group.retrying then return true end
  if state == "COMPLETED" then return false end
  if group.undoCount then restore_failed_undos(k, prefix) end
  return needs_settling(k, prefix, group, queues, seen, budget)
end

local page, last = page_of(parked, cursor, math.max(score, scores[state]), scores[state] + above, limit)
for _, entry in ipairs(page) do
  if budget.members <= 0 or budget.ids <= 0 then
    last = false
    break
  end
  cursor, score = entry.member, entry.score
  budget.members = budget.members - 1
  local ok, reply = pcall(review, entry.member)
  -- A group that cannot be read is settled, which reports the error.
  if not ok or reply then due[#due + 1] = entry.member end
end
local names_of_queues = {}
for base in pairs(queues) do
  -- A key of the queue may have another type; that must not stop the review of the groups after this page.
  pcall(release_jobs, base, budget)
  names_of_queues[#names_of_queues + 1] = string.sub(base, #prefix + 2, -2)
end
return cjson.encode({ due = due, discarded = discarded, queues = names_of_queues,
  cursor = last and "" or cursor, score = tostring(score) })
