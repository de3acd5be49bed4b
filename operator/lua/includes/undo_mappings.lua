--[[
  Which members of a group may still need an undo, and how each is undone.

  The field `undos` of the group's hash is a JSON list with a number for each member, in the order of the definition:
  the place of its mapping in the text `compensation`, 0 if it has none. The number becomes negative when the
  undo is added, or is not needed. jobgroup/definition/plan.py writes both fields. Texts of a mapping are cut out
  of `compensation`: decoding the data of a user would lose digits.

  Somebody who deletes the hash deletes the mappings. The field `members` of the pseudo parent has a digit for each
  member: 0 if it has no mapping, 2 if it is undone also if it only started, else 1.
]]
-- @include names
-- @include split_job_key
-- Not the places of any mapping: the text begins with a brace, and has at most 12 MB. The second one is for a
-- mapping that undoes a member also if it only started.
local LOST, LOST_FROM_START = 1, 1000000000

local function read_places(k) return cjson.decode(redis.call("HGET", k.group, "undos") or "[]") end

-- Return the options of an undo as BullMQ stores them. undo_options in jobgroup/definition/options.py has the same
-- defaults.
local function undo_options(given)
  local backoff = given.backoff or { type = "exponential", delay = 1000 }
  if type(backoff) == "number" then backoff = { type = "fixed", delay = backoff } end
  return string.format('{"attempts":%d,"backoff":{"type":"%s","delay":%.0f},"removeOnComplete":false,"removeOnFail":false}',
    given.attempts or 3, backoff.type, backoff.delay)
end

-- Return the mapping that is written from `place` to the place of the next one; nil if there is none.
local function cut_mapping(text, place, next_place)
  local last, data = string.find(text, ',"data":', place, true)
  if place <= LOST or not last then return nil end
  local job_name, rest = string.match(string.sub(text, place, last - 1), '^(.-):{"name":(.*)$')
  local given = cjson.decode('{"name":' .. rest .. "}")
  return {
    job_name = job_name, -- as JSON, like the data
    data = string.sub(text, data + 1, next_place - 3),
    name = given.name,
    queue = given.queueName, -- nil for the default
    opts = undo_options(given.opts or {}),
    from_start = given.when == "Started",
  }
end

-- Return a function that returns the mapping of the member at a position of the list.
local function read_mappings(k, places)
  local text, next_places, mappings = nil, {}, {}
  return function(n)
    if not text then
      text = redis.call("HGET", k.group, "compensation") or ""
      local sorted = {}
      for i, place in ipairs(places) do sorted[i] = math.abs(place) end
      table.sort(sorted)
      sorted[#sorted + 1] = #text + 1
      -- Of equal places, the last one is followed by the next place.
      for i, place in ipairs(sorted) do next_places[place] = sorted[i + 1] end
    end
    local place = math.abs(places[n] or 0)
    if not mappings[place] then
      mappings[place] = cut_mapping(text, place, next_places[place]) or { is_lost = true }
    end
    if not mappings[place].is_lost then return mappings[place] end
    local members = redis.call("HGET", k.parent, "members") or ""
    return { is_lost = true, from_start = place == LOST_FROM_START or string.sub(members, n, n) == "2" }
  end
end

local undo_mappings = {
  -- Return the keys of the members that may need an undo, in the order of the definition, and a function that
  -- returns the mapping of one of them.
  read = function(k)
    local places, keys, members = read_places(k), {}, {}
    for _, key in ipairs(#places > 0 and redis.call("HKEYS", k.jobs) or {}) do keys[names.index_of(key) + 1] = key end
    for n, place in ipairs(places) do
      if place > 0 then members[#members + 1] = keys[n] end
    end
    local mapping_at = read_mappings(k, places)
    return members, function(key) return mapping_at(names.index_of(key) + 1) end
  end,

  -- Return the queue and the id of the undo of a member. The queue is the default one if the mappings were lost.
  target = function(prefix, key, mapping)
    local queue, id = split_job_key(prefix, key)
    return mapping.queue or names.undo_queue(queue), names.undo_id(id)
  end,

  -- Record that these members need no undo any more.
  close = function(k, keys)
    if #keys == 0 then return end
    local places = read_places(k)
    for _, key in ipairs(keys) do
      local n = names.index_of(key) + 1
      if places[n] then places[n] = -math.abs(places[n]) end
    end
    if #places > 0 then redis.call("HSET", k.group, "undos", cjson.encode(places)) end
  end,

  -- Restore the list without the mappings. `undone` are the keys of the members whose undo was added.
  restore = function(k, undone)
    local places, lost = {}, { ["0"] = 0, ["1"] = LOST, ["2"] = LOST_FROM_START }
    for digit in string.gmatch(redis.call("HGET", k.parent, "members") or "", "[012]") do
      places[#places + 1] = lost[digit]
    end
    for _, key in ipairs(undone) do
      local n = names.index_of(key) + 1
      if places[n] then places[n] = -places[n] end
    end
    if #places > 0 then redis.call("HSET", k.group, "undos", cjson.encode(places)) end
  end,

  -- Restore the field of the pseudo parent.
  restore_members = function(k, total)
    local places, digits = read_places(k), {}
    local mapping_at = read_mappings(k, places)
    for n = 1, total do
      local mapping = (places[n] or 0) ~= 0 and mapping_at(n)
      digits[n] = not mapping and 0 or (mapping.from_start and 2 or 1)
    end
    redis.call("HSET", k.parent, "members", table.concat(digits))
  end,
}
