--[[
  The highest format of a group that these scripts understand. The pseudo parent of a group states its format
  in the field `format`; a group without the field has format 1. A release that writes a higher format writes
  it into the group's hash, too, because somebody may delete the pseudo parent.
]]
local formats = { highest = 2 }

function formats.is_newer(format) return (tonumber(format or 1) or math.huge) > formats.highest end

-- Raise the format of a group that got something which lower formats do not know.
function formats.raise(k, format)
  if tonumber(redis.call("HGET", k.parent, "format") or 1) >= format then return end
  redis.call("HSET", k.parent, "format", format)
  redis.call("HSET", k.group, "format", format)
end
