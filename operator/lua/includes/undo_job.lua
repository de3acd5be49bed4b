--[[
  Return the undo of a member as a job that add_job adds. `id` is that of the member, `value` its return value as JSON
  text: decoding it here would lose digits.
]]
-- @include names
local function undo_job(gid, id, mapping, value)
  local data = '{"groupId":"' .. gid .. '","originalJobName":' .. mapping.job_name .. ',"originalJobId":"' .. id
    .. '","originalReturnValue":' .. (value or "null") .. ',"compensationData":' .. mapping.data .. "}"
  return { id = names.undo_id(id), name = mapping.name, data = data, opts = mapping.opts }
end
