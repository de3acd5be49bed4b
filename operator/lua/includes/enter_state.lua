--[[
  Record and publish that a group enters a state. `change` has the name of the group, the states `from` and `state`,
  the request to give it up, which may be empty, and how often it has entered an ended state before: `ends`.

  Returns how often it has entered an ended state now.
]]
-- @include first_failure
-- @include publish_group_event
-- @include saga
-- @include undo_results
local function enter_state(k, prefix, gid, now, change)
  local from, state, name = change.from, change.state, change.name
  if from == "ACTIVE" and state ~= "COMPLETED" then
    local job_id, reason, attempts = first_failure(k, prefix)
    if job_id == "" then reason = change.request end
    redis.call("HSET", k.group, "failedJobId", job_id, "reason", reason, "failedAttempts", attempts, "failedAt", now)
  end

  if not saga.has_ended(state) then
    local failure = redis.call("HMGET", k.group, "failedJobId", "reason")
    publish_group_event(k, "compensating", gid, name, "failedJobId", failure[1] or "", "reason", failure[2] or "")
    if from ~= "ACTIVE" then
      redis.call("HSET", k.group, "compensatingAt", now)
      redis.call("HDEL", k.parent, "ended")
    end
    return change.ends
  end
  local ends = change.ends + 1
  if state == "COMPLETED" then
    publish_group_event(k, "completed", gid, name)
  else
    publish_group_event(k, "failed", gid, name, "state", state, "compensationResults", undo_results(k, prefix))
  end
  -- After the event, which may fail: a call that repeats this one counts the same end.
  -- Most groups end once; they need no field.
  if ends > 1 then redis.call("HSET", k.group, "attempt", ends) end
  return ends
end
