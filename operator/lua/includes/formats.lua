--[[
  The highest format of a group that these scripts understand. The pseudo parent of a group states its format
  in the field `format`; a group without the field has format 1.
]]
local formats = { highest = 1 }
