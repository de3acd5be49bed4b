--[[
  Name jobs, undos, their queues and the owner of groups without one. jobgroup/model/names.py has the same
  names; a test compares them.
]]
local names = {
  -- The owner of a group that no operator owns.
  headless = "headless",
  job_id = function(gid, index) return gid .. "-" .. index end,
  -- Return the place of a member in the definition; -1 if the key is not that of a member.
  index_of = function(job_key) return tonumber(string.match(job_key, "%-(%d+)$")) or -1 end,
  -- Of a member, or of a group: the second pseudo parent of a group is the parent of its undos.
  undo_id = function(id) return id .. "-undo" end,
  group_of_wakeup = function(entry) return (string.gsub(entry, "%-undo$", "")) end,
  -- Return the group of a member or of an undo; nil if the id belongs to neither.
  group_of_job = function(id) return string.match(string.gsub(id, "%-undo$", ""), "^(.+)%-%d+$") end,
  -- The reason with which a worker fails a member of a group that was given up.
  doom = function(gid) return "group " .. gid .. " was given up" end,
  -- Of the job that an entry of onEnd adds at an end of the group: `index` is its place, `attempt` the number of the end.
  end_job_id = function(gid, index, attempt) return string.format("%s-end-%d-%d", gid, index, attempt) end,
  undo_queue = function(queue) return queue .. ":compensation" end,
  job_key = function(prefix, queue, id) return prefix .. ":" .. queue .. ":" .. id end,
}
