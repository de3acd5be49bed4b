--[[
  Return the keys that belong to one group alone. create_groups refuses a group if one of them exists,
  remove_group deletes them; docs/redis-keys.md lists them, checked by a test.
]]
local function owned_keys(k)
  return {
    k.group, k.jobs,
    k.parent, k.open, k.done, k.failed,
    k.undo, k.undo_open, k.undo_done, k.undo_failed,
    k.records, k.resolved, k.on_end,
  }
end
