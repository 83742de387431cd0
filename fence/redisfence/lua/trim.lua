-- trim. Removes the entries below the lowest watermark; the entry at the floor stays.
-- KEYS  1 marks  2 stream  3 snapshot
-- ARGV  1 lease, ms: a mark not moved or renewed for as long is dropped  2 most bytes the stream may take, or '0':
--       past them the lowest marks are dropped until it fits or only the snapshot holds the floor
-- Reply {'ok', floor, removed, who holds the floor or '', expired consumers, consumers that the bound cost, entries
--       left, bytes left}; {'invalid', what}.

-- before orders marks by sequence, then as ties hold the floor.
local function before(a, b)
  if a.seq ~= b.seq then return a.seq < b.seq end
  local ka, kb = KINDS[a.kind] or 5, KINDS[b.kind] or 5
  if ka ~= kb then return ka < kb end
  return a.name < b.name
end

-- marks_of reads the marks, lowest first, and the highest floor ever. What cannot be read or was not renewed since
-- oldest is removed and returned apart.
local function marks_of(key, oldest)
  local all = redis.call('HGETALL', key)
  local by, trimmed = {}, 0
  for i = 1, #all, 2 do by[all[i]] = all[i + 1] end
  local live, expired = {}, {}
  for name, v in pairs(by) do
    if is_consumer(name) then
      local m = {name = name, kind = name:match('^%a+'), text = v, seq = number(v) or 0}
      local at = number(by[name .. '.at'])
      if not number(v) or not at or at < oldest then
        expired[#expired + 1] = m
      else
        live[#live + 1] = m
      end
    end
  end
  table.sort(live, before)
  for _, m in ipairs(expired) do m.seq = 0 end
  table.sort(expired, before)
  for i, m in ipairs(expired) do
    redis.call('HDEL', key, m.name, m.name .. '.at')
    expired[i] = m.name
  end
  return live, expired, number(by.trimmed) or 0
end

-- oldest_pending is the lowest pending entry of any consumer group, as a mark, or nil.
local function oldest_pending(stream)
  local lowest
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local name
    for i = 1, #g, 2 do
      if g[i] == 'name' then name = g[i + 1] end
    end
    local pending = redis.call('XPENDING', stream, name)
    if pending[1] > 0 then
      local s = string.match(pending[2], '^(%d+)%-')
      if number(s) and (not lowest or tonumber(s) < lowest.seq) then
        lowest = {name = 'group', kind = 'group', text = s, seq = tonumber(s)}
      end
    end
  end
  return lowest
end

local function trim(keys, args)
  local lease, most = number(args[1]), number(args[2])
  if not lease or lease < 1000 then return invalid('lease') end
  if not most or (most > 0 and most < 1048576) then return invalid('bytes') end
  local live, expired, trimmed = marks_of(keys[1], tonumber(now()) - lease)
  local evicted = {}
  local snap = redis.call('HGET', keys[3], 'seq')
  local there = redis.call('EXISTS', keys[2]) == 1
  if not snap or not number(snap) then
    local bytes = there and redis.call('MEMORY', 'USAGE', keys[2]) or 0
    return {'ok', '0', 0, '', expired, evicted, redis.call('XLEN', keys[2]), bytes}
  end
  if there then
    local pending = oldest_pending(keys[2])
    if pending then
      live[#live + 1] = pending
      table.sort(live, before)
    end
  end
  local removed, bytes, i = 0, 0, 1
  local floor, held
  repeat
    floor, held = snap, ''
    if live[i] and live[i].seq < tonumber(snap) then floor, held = live[i].text, live[i].name end
    if there then
      removed = removed + redis.call('XTRIM', keys[2], 'MINID', floor .. '-0')
      bytes = redis.call('MEMORY', 'USAGE', keys[2]) or 0
    end
    local over = most > 0 and bytes > most and held ~= ''
    if over then
      evicted[#evicted + 1] = held
      if held ~= 'group' then redis.call('HDEL', keys[1], held, held .. '.at') end
      i = i + 1
    end
  until not over
  if removed > 0 and tonumber(floor) > trimmed then redis.call('HSET', keys[1], 'trimmed', floor) end
  return {'ok', floor, removed, held, expired, evicted, redis.call('XLEN', keys[2]), bytes}
end
