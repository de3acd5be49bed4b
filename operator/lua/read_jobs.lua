--[[
  Read where each member is now, right even while nobody drives the group.

  KEYS[1] parent  hash, the group's pseudo parent
  ARGV[1] prefix  BullMQ's key prefix
  ARGV[2] gid     the group

  Returns  {key, queue, id, status, undo, ...} a member, or nothing if there is no such group; undo is
           nothing, pending, completed or failed
]]
-- @include keys_of
-- @include place_of
-- @include active_ids
local parent, prefix, gid = KEYS[1], ARGV[1], ARGV[2]

local queue_name = redis.call("HGET", parent, "queue")
local k = keys_of(prefix, gid, queue_name or "")
if not queue_name or redis.call("EXISTS", k.group) == 0 then return false end
local seen, rows, undoing = {}, {}, redis.call("EXISTS", k.undo) == 1
local statuses = redis.call("HGETALL", k.jobs)
for i = 1, #statuses, 2 do
  local key, status = statuses[i], statuses[i + 1]
  local queue, id = place_of(prefix, key)
  if redis.call("HEXISTS", k.done, key) == 1 then
    status = "completed"
  elseif redis.call("ZSCORE", k.failed, key) then
    status = "failed"
  elseif redis.call("SISMEMBER", k.open, key) == 1 then
    status = active_ids(seen, prefix, queue)[id] and "active" or "pending"
  elseif status ~= "cancelled" then
    status = "failed"
  end
  local undo = ""
  if undoing then
    local undo_key = prefix .. ":" .. queue .. ":compensation:" .. id .. "-undo"
    if redis.call("HEXISTS", k.undo_done, undo_key) == 1 then
      undo = "completed"
    elseif redis.call("ZSCORE", k.undo_failed, undo_key) then
      undo = "failed"
    elseif redis.call("SISMEMBER", k.undo_open, undo_key) == 1 then
      undo = "pending"
    elseif redis.call("HEXISTS", k.undo, undo_key) == 1 then
      undo = "failed"
    end
  end
  for _, value in ipairs({ key, queue, id, status, undo }) do rows[#rows + 1] = value end
end
return rows
