--[[
  Return the `parent` field of a job: BullMQ reads it when the job fails. A prefix may contain quotes.
]]
local function family(k, parent_id)
  return '{"id":"' .. parent_id .. '","queueKey":' .. cjson.encode(k.ledger) .. ',"fpof":true}'
end
