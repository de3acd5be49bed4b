--[[
  Return whether an entry of a sorted set precedes another one: by score, then by the bytes of the member. Lua compares
  texts as the locale demands.
]]
local function is_before(a, b)
  if tonumber(a.score) ~= tonumber(b.score) then return tonumber(a.score) < tonumber(b.score) end
  for i = 1, math.min(#a.member, #b.member) do
    local x, y = string.byte(a.member, i), string.byte(b.member, i)
    if x ~= y then return x < y end
  end
  return #a.member < #b.member
end
