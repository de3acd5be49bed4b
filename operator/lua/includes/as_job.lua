--[[
  Return the given fields of a pseudo parent, and those without which stock clients cannot read it as a job: Node
  would show no name and no numbers. `data` and `opts` are left out: clients read them as empty.
]]
local function as_job(name, timestamp, ...)
  return "name", name, "timestamp", timestamp, "delay", "0", "priority", "0", ...
end
