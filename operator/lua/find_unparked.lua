--[[
  Find groups that are in the index of their owning queue, but not among the parked groups: they are on the
  wake-up list, or somebody deleted the pseudo parent.

  KEYS[1] parked  zset of the parked groups
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] queue   the owning queue
  ARGV[3] cursor  the last group of the page before, or empty
  ARGV[4] score   its score, or 0
  ARGV[5] limit   how many groups to look up

  Returns  JSON:
           unparked  ids of the groups that are not parked
           cursor    the last group of this page, or empty if it is the last page
           score     its score
]]
-- @include keys_of
-- @include page_of
local parked, prefix, queue, cursor, score, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local unparked = {}
local index = keys_of(prefix, "", queue).index
local page, last = {}, true
if redis.call("TYPE", index).ok == "zset" then page, last = page_of(index, cursor, score, math.huge, limit) end
for _, entry in ipairs(page) do
  cursor, score = entry.member, entry.score
  if not redis.call("ZSCORE", parked, entry.member) then unparked[#unparked + 1] = entry.member end
end
return cjson.encode({ unparked = unparked, cursor = last and "" or cursor, score = tostring(score) })
