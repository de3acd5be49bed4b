--[[
  Return the options of a job with which BullMQ removes it when it fails. Members and undos are stored with this
  option set to false.
]]
local function remove_on_fail(opts)
  return (string.gsub(opts or "{}", '"removeOnFail":false', '"removeOnFail":true'))
end
