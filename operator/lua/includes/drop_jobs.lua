--[[
  Remove jobs that are not active from one queue, with all their keys. The arguments and results are those of
  take_jobs.
]]
-- @include call_in_batches
-- @include job_keys
-- @include take_jobs
local function drop_jobs(base, ids, together, budget)
  local was, unsure = take_jobs(base, ids, together, budget)
  local doomed = {}
  for _, id in ipairs(ids) do
    if was[id] then
      for _, key in ipairs({ job_keys(base .. id) }) do doomed[#doomed + 1] = key end
      redis.call("XADD", base .. "events", "MAXLEN", "~", 10000, "*", "event", "removed", "jobId", id, "prev", was[id])
    end
  end
  if doomed[1] then call_in_batches("UNLINK", doomed[1], doomed) end
  return was, unsure
end
