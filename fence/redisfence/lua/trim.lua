-- trim. Removes the entries below the lowest watermark; the entry at the floor stays.
-- KEYS  1 marks  2 stream  3 snapshot
-- ARGV  1 lease, ms: a mark not moved or renewed for as long is dropped, if an earlier trim, half a lease ago or
--       more, found it silent too; an entry that a group has had pending for as long no longer counts  2 most
--       bytes the stream may take, or '0': past them the lowest marks are dropped until it fits or only the snapshot
--       holds the floor  3 'shown', if the caller wants that in the reply
-- Reply {'ok', floor, removed, the consumer that holds the floor or '', expired consumers, consumers that the bound
--       cost, entries left, bytes left, and if asked the highest epoch shown by a consumer}; {'invalid', what}.
--       Still over the bound and held: call again.

-- Nodes of a stream that are measured one by one. Redis guesses from the first five, which is wrong by a factor of
-- ten where small entries are followed by large ones. A full node takes about 4 KiB or holds one larger entry: up to
-- 60 MiB or so the measure is exact. It costs about 50 ns a node.
local NODES = 16384

-- Steps to the next lowest mark in one call, each of which measures the stream.
local STEPS = 8

-- Pending entries of a group that are looked at in one call.
local PENDING = 128

-- before orders marks by sequence, then as ties hold the floor. Names are compared in the server's locale: which of
-- two relays at one sequence is named depends on it, what is removed does not.
local function before(a, b)
  if a.seq ~= b.seq then return a.seq < b.seq end
  local ka, kb = KINDS[a.kind] or 5, KINDS[b.kind] or 5
  if ka ~= kb then return ka < kb end
  return a.name < b.name
end

-- kind_of is the kind of consumer whose mark a field of the marks is, or nil.
local function kind_of(field)
  if field:sub(1, 6) == 'relay:' then return not field:find('.', 1, true) and 'relay' or nil end
  return KINDS[field] and field ~= 'relay' and field or nil
end

-- marks_of reads the marks, in any order, the highest floor ever, and the highest epoch shown. What cannot be read or
-- was not renewed for the lease is removed and returned apart. A lease that began in the future, since the clock was
-- stepped back, begins now.
--
-- Age alone does not drop a mark, because a clock that steps forward ages all of them at once. A trim that finds a mark
-- silent for half a lease notes when, and only half a lease after the note may the mark go. Its consumer lives if it
-- renews the mark in that time, whatever the clock did before, and the note is void.
local function marks_of(key, lease)
  local all = redis.call('HGETALL', key)
  local clock = now()
  local newest = tonumber(clock)
  local by = {}
  for i = 1, #all, 2 do by[all[i]] = all[i + 1] end
  local live, expired = {}, {}
  for name, v in pairs(by) do
    local kind = kind_of(name)
    if kind then
      local seq, at = sequence(v), number(by[name .. '.at'])
      local silent = by[name .. '.silent']
      local noted = number(silent)
      if noted and (noted > newest or not at or at >= noted) then noted = nil end
      if not seq or not at or (noted and noted <= newest - lease / 2) then
        expired[#expired + 1] = {name = name, kind = kind, seq = 0}
      else
        live[#live + 1] = {name = name, kind = kind, text = v, seq = seq}
        if at > newest then redis.call('HSET', key, name .. '.at', clock) end
        if at >= newest - lease / 2 then
          if silent then redis.call('HDEL', key, name .. '.silent') end
        elseif not noted then
          redis.call('HSET', key, name .. '.silent', clock)
        end
      end
    end
  end
  table.sort(expired, before)
  for i, m in ipairs(expired) do
    drop(key, m.name)
    expired[i] = m.name
  end
  return live, expired, sequence(by.trimmed) and by.trimmed or '0', number(by.shown) and by.shown or '0'
end

-- pending_of adds to marks one for each consumer group: the lowest entry, not below from, that was delivered within the
-- lease and is not acknowledged. Behind the last that is looked at there may be more, so that one holds in any case;
-- the next trim looks further. It returns the lowest entry that was delivered before that, or nil.
local function pending_of(stream, from, lease, marks)
  local idle
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local name
    for i = 1, #g, 2 do
      if g[i] == 'name' then name = g[i + 1] end
    end
    for k, p in ipairs(redis.call('XPENDING', stream, name, from .. '-0', '+', PENDING)) do
      local text = p[1]:match('^(%d+)%-')
      local s = number(text) or 0
      if p[3] < lease or k == PENDING then
        marks[#marks + 1] = {name = 'group', kind = 'group', text = text, seq = s}
        break
      end
      if not idle or s < idle then idle = s end
    end
  end
  return idle
end

-- lowest_first puts the lowest mark first, without the cost of sorting them all.
local function lowest_first(marks)
  for i = 2, #marks do
    if before(marks[i], marks[1]) then marks[1], marks[i] = marks[i], marks[1] end
  end
end

local function trim(keys, args)
  local lease, most = number(args[1]), number(args[2])
  if not lease or lease < 1000 then return invalid('lease') end
  if not most or (most > 0 and most < 1048576) then return invalid('bytes') end
  local live, expired, trimmed, shown = marks_of(keys[1], lease)
  if args[3] ~= 'shown' then shown = nil end -- a caller of an earlier release
  local evicted = {}
  local snap = redis.call('HGET', keys[3], 'seq')
  local there = redis.call('EXISTS', keys[2]) == 1
  local function measure() return there and redis.call('MEMORY', 'USAGE', keys[2], 'SAMPLES', NODES) or 0 end
  if not number(snap) or (there and not redis.call('XRANGE', keys[2], snap .. '-0', '+', 'COUNT', 1)[1]) then
    -- Without a snapshot, or with one of a sequence that is past the end of the stream, which no owner saved.
    return {'ok', '0', 0, '', expired, evicted, redis.call('XLEN', keys[2]), measure(), shown}
  end
  -- No trim goes past the snapshot. A floor that does was written by others, and each consumer would resync for ever.
  if tonumber(trimmed) > tonumber(snap) then
    trimmed = snap
    redis.call('HSET', keys[1], 'trimmed', snap)
  end
  local idle = there and pending_of(keys[2], trimmed, lease, live)
  lowest_first(live)
  local removed, step, i = 0, 0, 1
  local floor, held, bytes, gone
  repeat
    floor, held = snap, ''
    if live[i] and live[i].seq < tonumber(snap) then floor, held = live[i].text, live[i].name end
    gone = there and redis.call('XTRIM', keys[2], 'MINID', floor .. '-0') or 0
    removed = removed + gone
    -- A floor is remembered if entries were removed below it, not if it merely passed a gap in the sequence: then it
    -- does not matter how many calls a trim takes. At once, because a server may refuse what follows, and nothing
    -- undoes a removal.
    if gone > 0 and tonumber(floor) > tonumber(trimmed) then
      trimmed = floor
      redis.call('PERSIST', keys[1]) -- see mark
      redis.call('HSET', keys[1], 'trimmed', floor)
    end
    if gone > 0 or not bytes then
      bytes, step = measure(), step + 1
    end
    local over = most > 0 and bytes > most and held ~= '' and step < STEPS
    if over then
      if i == 1 then table.sort(live, before) end
      evicted[#evicted + 1] = held
      if held ~= 'group' then drop(keys[1], held) end
      i = i + 1
    end
  until not over
  if idle and idle < tonumber(floor) then expired[#expired + 1] = 'group' end
  return {'ok', floor, removed, held, expired, evicted, redis.call('XLEN', keys[2]), bytes, shown}
end
