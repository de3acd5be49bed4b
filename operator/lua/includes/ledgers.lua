--[[
  Describe the two ledgers of a group for harvest: the keys of its parts, the hash that lists what belongs to
  it, how many entries it must have, and how to list them.
]]
local ledgers = {
  members = function(k, expected)
    return {
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
      list = function()
        local keys, made = {}, redis.call("HGETALL", k.undo)
        for i = 1, #made, 2 do
          if string.sub(made[i + 1], 1, #prefix + 1) == prefix .. ":" then keys[#keys + 1] = made[i] end
        end
        return keys
      end,
    }
  end,
}
