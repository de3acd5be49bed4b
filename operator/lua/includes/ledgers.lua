--[[
  Describe the two ledgers of a group for harvest: the keys of its parts, the pseudo parent that its jobs name,
  the hash that lists what belongs to it, how many entries it must have, and how to list them.

  `adopt` returns whether a job that is in no part of the ledger is still a member, and puts it back: somebody
  removed it from its parent, but not from its queue.
]]
-- @include belongs
-- @include family
-- @include restore_entry
local ledgers = {
  members = function(k, prefix, gid, expected)
    return {
      adopt = function(key)
        local job = redis.call("HMGET", key, "returnvalue", "parentKey")
        -- A copy of a member has no value, and a member that was run again has none. trace_members tells them apart.
        if not job[1] or job[2] == k.sealed or not belongs(k, gid, key) then return false end
        redis.call("HSET", key, "parentKey", k.parent, "parent", family(k, gid))
        restore_entry(prefix, key, k.parent, k.sealed, k.open, k.done, k.failed)
        return true
      end,
      open = k.open, done = k.done, failed = k.failed, hash = k.parent, members = k.jobs, expected = expected,
      list = function()
        local keys, statuses = {}, redis.call("HGETALL", k.jobs)
        for i = 1, #statuses, 2 do
          if statuses[i + 1] ~= "cancelled" then keys[#keys + 1] = statuses[i] end
        end
        return keys
      end,
    }
  end,

  undos = function(k, prefix, expected)
    return {
      open = k.undo_open, done = k.undo_done, failed = k.undo_failed, hash = k.undo, members = k.undo,
      expected = expected,
      adopt = function() return false end,
      list = function()
        local keys, made = {}, redis.call("HGETALL", k.undo)
        for i = 1, #made, 2 do
          local is_undo = made[i] ~= "name" and string.sub(made[i + 1], 1, #prefix + 1) == prefix .. ":"
          if is_undo then keys[#keys + 1] = made[i] end
        end
        return keys
      end,
    }
  end,
}
