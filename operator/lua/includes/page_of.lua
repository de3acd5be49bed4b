--[[
  Return one page of a sorted set, the members of a range of scores after a cursor, with their scores.

  The cursor is the last member of the page before and its score. If that member has left its place, the page
  begins with the first member of its score: a page may repeat members, and leaves none out unless its score
  fell. The scores of groups only rise, except that of a group that could not be settled, and that of a group
  that leaves FAILED_COMPENSATION: the next pass reads it.
]]
local function page_of(set, cursor, score, above, limit)
  local first
  local known = cursor ~= "" and redis.call("ZSCORE", set, cursor)
  if known and tonumber(known) == tonumber(score) then
    first = redis.call("ZRANK", set, cursor) + 1
  else
    first = redis.call("ZCOUNT", set, "-inf", string.format("(%.0f", score))
  end
  local page = {}
  local found = redis.call("ZRANGE", set, first, first + limit - 1, "WITHSCORES")
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) >= above then return page, true end
    page[#page + 1] = { member = found[i], score = found[i + 1] }
  end
  return page, #found < 2 * limit
end
