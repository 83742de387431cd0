-- Seats of the tiles of one pool, in one slot. KEYS[1] is the base, {seats:<pool>}; other keys are the base and:
--   :until     sorted set of tiles, by when their offer ends (ms)
--   :free      sorted set of tiles that were seen to serve, by how many seats are free
--   :s:<tile>  hash of a tile: epoch, contact, info (JSON), seats, used
--   :b:<tile>  bitmap of its seats that are held or taken
--   :on:<tile> set of the matches that have seats on it
--   :a:<match> hash of a match: shard, tile, epoch, contact, info, by (until when it is held, ms), order (its tickets,
--              by spaces), open (tickets that are not given back), and of each ticket 't:<id>': a state and its seats,
--              'h:0,1'; h held, k taken, l lapsed and not settled, g given back
--   :holds     sorted set of '<match> <ticket>' that are held, by until when
--   :lapsed    sorted set of '<match> <ticket>' that lapsed and are not settled, by when they were listed last (ms)

local GIVEN = 86400000 -- ms that a match is remembered when it has no seats: longer than its tickets

-- load counts a tile's free seats anew, if it serves.
local function load(base, tile, seats, used)
  redis.call('ZADD', base .. ':free', 'XX', math.max(0, seats - used), tile)
end

-- offer. ARGV tile, epoch, contact, info (JSON), seats, ttl (ms). Reply {'ok', used}, or {'stale', current epoch}.
local function offer(keys, args)
  local base, tile, seats, ttl = keys[1], args[1], whole(args[5]), whole(args[6])
  if not whole(args[2]) or not seats or seats < 1 or not ttl or ttl < 1 then return {'invalid', 'offer'} end
  local had = redis.call('HMGET', base .. ':s:' .. tile, 'epoch', 'used')
  if had[1] and tonumber(had[1]) > tonumber(args[2]) then return {'stale', had[1]} end
  local used = had[2] or '0'
  redis.call('HSET', base .. ':s:' .. tile, 'epoch', args[2], 'contact', args[3], 'info', args[4], 'seats', args[5],
    'used', used)
  redis.call('ZADD', base .. ':until', text(now() + ttl), tile)
  redis.call('ZADD', base .. ':free', math.max(0, seats - used), tile)
  return {'ok', used}
end

-- shut closes the account of one ticket of a match.
local function shut(base, match, tile)
  if redis.call('HINCRBY', base .. ':a:' .. match, 'open', -1) <= 0 then
    redis.call('SREM', base .. ':on:' .. tile, match)
    redis.call('PEXPIRE', base .. ':a:' .. match, GIVEN)
  end
end

-- give frees a ticket's seats if they are held or taken: to is 'l' or 'g'. Reply whether they were.
local function give(base, match, id, to)
  local a = redis.call('HMGET', base .. ':a:' .. match, 't:' .. id, 'tile')
  local state = a[1] and a[1]:sub(1, 1)
  if state ~= 'h' and state ~= 'k' then return false end
  local tile, n = a[2], 0
  for seat in a[1]:gmatch('%d+') do
    redis.call('SETBIT', base .. ':b:' .. tile, seat, 0)
    n = n + 1
  end
  redis.call('HSET', base .. ':a:' .. match, 't:' .. id, to .. a[1]:sub(2))
  redis.call('ZREM', base .. ':holds', match .. ' ' .. id)
  local used = redis.call('HINCRBY', base .. ':s:' .. tile, 'used', -n)
  load(base, tile, redis.call('HGET', base .. ':s:' .. tile, 'seats'), used)
  if to == 'l' then
    redis.call('ZADD', base .. ':lapsed', text(now()), match .. ' ' .. id)
  else
    shut(base, match, tile)
  end
  return true
end

-- withdraw. ARGV tile, epoch. Reply 'ok', or {'stale', current epoch}.
local function withdraw(keys, args)
  local base, tile = keys[1], args[1]
  local had = redis.call('HGET', base .. ':s:' .. tile, 'epoch')
  if not had or not whole(args[2]) then return {'ok'} end
  if tonumber(had) > tonumber(args[2]) then return {'stale', had} end
  redis.call('HSET', base .. ':s:' .. tile, 'epoch', args[2])
  redis.call('ZREM', base .. ':until', tile)
  redis.call('ZREM', base .. ':free', tile)
  for _, match in ipairs(redis.call('SMEMBERS', base .. ':on:' .. tile)) do
    local a = redis.call('HGET', base .. ':a:' .. match, 'order') or ''
    for id in a:gmatch('%S+') do
      local state = (redis.call('HGET', base .. ':a:' .. match, 't:' .. id) or ''):sub(1, 1)
      give(base, match, id, state == 'h' and 'l' or 'g')
    end
  end
  return {'ok'}
end

-- choose returns the fullest tile that serves and has room: only this one, or any ('').
local function choose(base, only, need, t)
  for _ = 1, 64 do
    local tile = only
    if only == '' then
      tile = redis.call('ZRANGEBYSCORE', base .. ':free', need, '+inf', 'LIMIT', 0, 1)[1]
    end
    if not tile then return nil end
    local ends = redis.call('ZSCORE', base .. ':until', tile)
    if ends and tonumber(ends) > t then
      if only == '' then return tile end
      local free = redis.call('ZSCORE', base .. ':free', tile)
      return free and tonumber(free) >= need and tile or nil
    end
    redis.call('ZREM', base .. ':free', tile) -- until its next offer
    if only ~= '' then return nil end
  end
end

-- hold gives a match seats on a tile, and returns its answer, see below. parties are tickets and how many each needs,
-- one after the other.
local function hold(base, match, shard, tile, parties, need, by)
  local s = redis.call('HMGET', base .. ':s:' .. tile, 'epoch', 'contact', 'info', 'seats')
  local fields, order, holds, reply = {}, {}, {}, {tile, s[1], s[2], s[3], by}
  for i = 1, #parties, 2 do
    local seats = {}
    for _ = 1, parties[i + 1] do
      local seat = redis.call('BITPOS', base .. ':b:' .. tile, 0)
      redis.call('SETBIT', base .. ':b:' .. tile, seat, 1)
      seats[#seats + 1] = text(seat)
    end
    local list = table.concat(seats, ',')
    fields[#fields + 1], fields[#fields + 2] = 't:' .. parties[i], 'h:' .. list
    holds[#holds + 1], holds[#holds + 2] = by, match .. ' ' .. parties[i]
    reply[#reply + 1], reply[#reply + 2] = parties[i], list
    order[#order + 1] = parties[i]
  end
  redis.call('ZADD', base .. ':holds', unpack(holds))
  redis.call('HSET', base .. ':a:' .. match, 'shard', shard, 'tile', tile, 'epoch', s[1], 'contact', s[2], 'info', s[3],
    'by', by, 'order', table.concat(order, ' '), 'open', #order, unpack(fields))
  redis.call('SADD', base .. ':on:' .. tile, match)
  load(base, tile, s[4], redis.call('HINCRBY', base .. ':s:' .. tile, 'used', need))
  return reply
end

-- answer is what a match has: {tile, epoch, contact, info, by, then tickets and their seats}; nil for nothing.
local function answer(base, match)
  local a = redis.call('HMGET', base .. ':a:' .. match, 'tile', 'epoch', 'contact', 'info', 'by', 'order')
  if not a[1] then return nil end
  local reply = {a[1], a[2], a[3], a[4], a[5]}
  for id in a[6]:gmatch('%S+') do
    local seats = redis.call('HGET', base .. ':a:' .. match, 't:' .. id)
    reply[#reply + 1], reply[#reply + 2] = id, seats:sub(3)
  end
  return reply
end

-- allocate. ARGV hold (ms), then of each match: id, shard, tile or '', parties by spaces ('t1 2 t2 1').
-- Reply {'ok', then the answer of each, or 0 if no tile has room}.
local function allocate(keys, args)
  local base, held = keys[1], whole(args[1])
  if not held or held < 1 or (#args - 1) % 4 ~= 0 then return {'invalid', 'hold or orders'} end
  local t, reply = now(), {'ok'}
  for i = 2, #args, 4 do
    local match, parties, need = args[i], {}, 0
    for word in args[i + 3]:gmatch('%S+') do
      parties[#parties + 1] = word
      if #parties % 2 == 0 then need = need + tonumber(word) end
    end
    local has = answer(base, match)
    if has then
      redis.call('HSET', base .. ':a:' .. match, 'tile', has[1])
    else
      local tile = choose(base, args[i + 2], need, t)
      has = tile and hold(base, match, args[i + 1], tile, parties, need, text(t + held))
    end
    reply[#reply + 1] = has or 0
  end
  return reply
end

-- seat_take. ARGV match, ticket. Reply 'ok' or 'lapsed'.
local function seat_take(keys, args)
  local base, key, field = keys[1], keys[1] .. ':a:' .. args[1], 't:' .. args[2]
  local a = redis.call('HMGET', key, field, 'by')
  local state = a[1] and a[1]:sub(1, 1)
  if state ~= 'k' and (state ~= 'h' or tonumber(a[2]) <= now()) then return {'lapsed'} end
  redis.call('HSET', key, field, 'k' .. a[1]:sub(2))
  redis.call('ZREM', base .. ':holds', args[1] .. ' ' .. args[2])
  return {'ok'}
end

-- seat_free. ARGV match, ticket. Reply 'ok'.
local function seat_free(keys, args)
  give(keys[1], args[1], args[2], 'g')
  return {'ok'}
end

-- lapsed. ARGV limit. Reply {'ok', then shard, match and ticket of each}.
local function lapsed(keys, args)
  local base, limit = keys[1], whole(args[1])
  if not limit or limit < 1 then return {'invalid', 'limit'} end
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', base .. ':holds', '-inf', text(now()), 'LIMIT', 0, limit)) do
    local match, id = m:match('^(%S+) (%S+)$')
    if not give(base, match, id, 'l') then redis.call('ZREM', base .. ':holds', m) end
  end
  local reply, t = {'ok'}, text(now())
  for _, m in ipairs(redis.call('ZRANGE', base .. ':lapsed', 0, limit - 1)) do
    redis.call('ZADD', base .. ':lapsed', 'XX', t, m) -- others have their turn before it comes again
    local match, id = m:match('^(%S+) (%S+)$')
    reply[#reply + 1] = redis.call('HGET', base .. ':a:' .. match, 'shard') or ''
    reply[#reply + 1], reply[#reply + 2] = match, id
  end
  return reply
end

-- settled. ARGV match and ticket of each. Reply 'ok'.
local function settled(keys, args)
  local base = keys[1]
  for i = 1, #args, 2 do
    if redis.call('ZREM', base .. ':lapsed', args[i] .. ' ' .. args[i + 1]) == 1 then
      local key, field = base .. ':a:' .. args[i], 't:' .. args[i + 1]
      local a = redis.call('HMGET', key, field, 'tile')
      redis.call('HSET', key, field, 'g' .. a[1]:sub(2))
      shut(base, args[i], a[2])
    end
  end
  return {'ok'}
end

-- tiles. Reply {'ok', then tile, epoch, contact, info, seats, used and '1' if it serves, of each}.
local function tiles(keys)
  local base, t, reply = keys[1], now(), {'ok'}
  local list = redis.call('ZRANGE', base .. ':until', 0, -1, 'WITHSCORES')
  for i = 1, #list, 2 do
    reply[#reply + 1] = list[i]
    for _, v in ipairs(redis.call('HMGET', base .. ':s:' .. list[i], 'epoch', 'contact', 'info', 'seats', 'used')) do
      reply[#reply + 1] = v
    end
    reply[#reply + 1] = tonumber(list[i + 1]) > t and '1' or '0'
  end
  return reply
end
