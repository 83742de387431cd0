-- The functions of package redisviewcache. Each gets the four keys of a group and the lock of one of its tiles, all in
-- one slot:
--   index   hash: tile -> '<at> <base> <stamp> <token>' of its newest version; '#bytes', '#evicted' of the group
--   values  hash: '<tile> t <at>' -> tail of a version, '<tile> b <base>' -> snapshot
--   used    sorted set: tile -> microseconds of its last use
--   old     sorted set: name of a value of a superseded version -> microseconds at which its grace ends
--   lock    string: token of the holder, with a time to live
-- The first four have a member '#' besides, so that none of them is ever empty: one that is not there was evicted.
-- Numbers are below 2^53. A call does a bounded amount of work.

local ORIGIN = '0/0/0000000000000000'
local MOST = 64 -- values reclaimed in one call
local EVICTED = 1024 -- evicted in one call, to make room for one version
local COST = 256 -- viewcache.ValueCost
local DAY = 86400000000 -- microseconds

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function text(n)
  return ('%.0f'):format(n)
end

-- number returns s as a number if it is a plain decimal below 2^53, else nil.
local function number(s)
  local n = tonumber(s)
  if n and n <= 9007199254740991 and (s:find('^[1-9]%d*$') or s == '0') then return n end
end

-- position returns epoch and sequence of a position, or nil if it is none.
local function position(p)
  local e, s, c = (p or ''):match('^(%d+)/(%d+)/([0-9a-f]+)$')
  if number(e) and number(s) and #c == 16 then return tonumber(e), tonumber(s) end
end

-- plausible reports whether s is an instant in microseconds that is not more than a day ahead: the clock may have been
-- stepped back. Stamps and tokens are instants, and what is compared with one of the year 2255 is never newer.
local function plausible(s)
  local n = number(s)
  return n and n <= now() + DAY
end

-- newest is the entry of a tile, or nil. One that cannot be read, or be true, is as good as none.
local function newest(keys, tile)
  local at, base, stamp, token = (redis.call('HGET', keys[1], tile) or ''):match('^(%S+) (%S+) (%d+) (%d+)$')
  if position(at) and position(base) and plausible(stamp) and plausible(token) then
    return {at = at, base = base, stamp = stamp, token = tonumber(token)}
  end
end

local function tail_of(tile, at) return tile .. ' t ' .. at end
local function base_of(tile, base) return tile .. ' b ' .. base end

-- remove deletes a value and keeps account of it.
local function remove(keys, name)
  local size = redis.call('HSTRLEN', keys[2], name)
  if redis.call('HDEL', keys[2], name) == 1 then redis.call('HINCRBY', keys[1], '#bytes', -size - COST) end
  redis.call('ZREM', keys[4], name)
end

local function forget(keys, tile, entry)
  remove(keys, tail_of(tile, entry.at))
  remove(keys, base_of(tile, entry.base))
  redis.call('HDEL', keys[1], tile)
  redis.call('ZREM', keys[3], tile)
end

-- anew empties a group.
local function anew(keys)
  redis.call('DEL', keys[1], keys[2], keys[3], keys[4])
  redis.call('HSET', keys[1], '#', '')
  redis.call('HSET', keys[2], '#', '')
  redis.call('ZADD', keys[3], '+inf', '#')
  redis.call('ZADD', keys[4], '+inf', '#')
end

-- whole begins a group anew that has lost one of its keys, or has one of another type, or an account that is no number:
-- what the others say does not add up any more, and nothing would ever put the account right, or remove the values that
-- are in no list.
local function whole(keys)
  local index, values = redis.pcall('HEXISTS', keys[1], '#'), redis.pcall('HEXISTS', keys[2], '#')
  local used, old = redis.pcall('ZCARD', keys[3]), redis.pcall('ZCARD', keys[4])
  if index == 1 and values == 1 and type(used) == 'number' and used > 0 and type(old) == 'number' and old > 0 and
    number(redis.call('HGET', keys[1], '#bytes') or '0') then return end
  anew(keys)
end

-- reclaim removes what has outlived its grace.
local function reclaim(keys, clock)
  for _, name in ipairs(redis.call('ZRANGE', keys[4], '-inf', text(clock), 'BYSCORE', 'LIMIT', 0, MOST)) do
    remove(keys, name)
  end
end

local function unlock_if(keys, token)
  if redis.call('GET', keys[5]) == token then redis.call('DEL', keys[5]) end
end

-- recount puts right the account of a group that has the values of one tile at most. It reports whether it was wrong.
local function recount(keys)
  local sum = 0
  if redis.call('HLEN', keys[2]) > 8 then -- with values that are in no list
    anew(keys)
    return true
  end
  for _, name in ipairs(redis.call('HKEYS', keys[2])) do
    if name ~= '#' then sum = sum + redis.call('HSTRLEN', keys[2], name) + COST end
  end
  local wrong = tonumber(redis.call('HGET', keys[1], '#bytes') or 0) ~= sum
  if wrong then redis.call('HSET', keys[1], '#bytes', text(sum)) end
  return wrong
end

-- make_room evicts until need bytes fit: superseded versions, oldest first, then the tiles used least recently.
local function make_room(keys, own, need, share)
  local evicted, fits = 0, false
  while true do
    fits = tonumber(redis.call('HGET', keys[1], '#bytes') or 0) + need <= share
    if fits or evicted == EVICTED then break end
    local old = redis.call('ZRANGE', keys[4], 0, 0)
    if old[1] and old[1] ~= '#' then
      remove(keys, old[1])
    else
      local used = redis.call('ZRANGE', keys[3], 0, 1)
      local victim = used[1] ~= own and used[1] or used[2]
      if not victim or victim == '#' then
        if not recount(keys) then break end
        fits = tonumber(redis.call('HGET', keys[1], '#bytes') or 0) + need <= share
        break
      end
      local entry = newest(keys, victim)
      if entry then
        forget(keys, victim, entry)
      else
        redis.call('HDEL', keys[1], victim)
        redis.call('ZREM', keys[3], victim)
      end
    end
    evicted = evicted + 1
  end
  if evicted > 0 then redis.call('HINCRBY', keys[1], '#evicted', evicted) end
  return fits
end

-- room_for makes room for a version. Superseded values that it uses again are not evicted for it; if there is no room
-- they end as they would have.
local function room_for(keys, tile, at, base, need, share)
  local names, ends = {tail_of(tile, at), base_of(tile, base)}, {}
  for _, name in ipairs(names) do
    ends[name] = redis.call('ZSCORE', keys[4], name)
    redis.call('ZREM', keys[4], name)
  end
  if make_room(keys, tile, need, share) then return true end
  for name, clock in pairs(ends) do
    if clock then redis.call('ZADD', keys[4], clock, name) end
  end
  return false
end

local function set(keys, name, value)
  remove(keys, name)
  redis.call('HSET', keys[2], name, value)
  redis.call('HINCRBY', keys[1], '#bytes', #value + COST)
end

-- note makes a version the newest one, and announces it: '<tile> <at> <base> <stamp>'.
local function note(keys, channel, tile, at, base, clock, token)
  redis.call('HSET', keys[1], tile, table.concat({at, base, text(clock), token}, ' '))
  redis.call('ZADD', keys[3], text(clock), tile)
  redis.call('SPUBLISH', channel, table.concat({tile, at, base, text(clock)}, ' '))
end

-- found adds the newest version to a reply: '<at> <base> <stamp>', and the time now.
local function found(keys, tile, entry, clock, reply)
  if entry then
    redis.call('ZADD', keys[3], 'XX', text(clock), tile)
    table.insert(reply, table.concat({entry.at, entry.base, entry.stamp}, ' '))
    table.insert(reply, text(clock))
  end
  return reply
end

-- find: ARGV tile. Reply {'<at> <base> <stamp>', now}, or {}.
local function find(keys, args)
  return found(keys, args[1], newest(keys, args[1]), now(), {})
end

-- lock: ARGV tile, position and stamp of the newest version that the caller has seen ('0' for none), lease in
-- milliseconds. Reply {'held', token}, {'busy'}, or {'changed'} and what find replies.
local function lock(keys, args)
  local tile, seen, stamp, lease = args[1], args[2], args[3], args[4]
  if not position(seen) or not number(stamp) or not number(lease) then return {'invalid'} end
  local clock = now()
  whole(keys)
  reclaim(keys, clock)
  local entry = newest(keys, tile)
  if (entry and entry.stamp or '0') ~= stamp or (entry and entry.at or ORIGIN) ~= seen then
    return found(keys, tile, entry, clock, {'changed'})
  end
  local token = text(math.max(clock, entry and entry.token + 1 or 0))
  if redis.call('SET', keys[5], token, 'NX', 'PX', lease) then return {'held', token} end
  return {'busy'}
end

-- renew: ARGV token, lease in milliseconds. Reply 1 if the lock is held under the token, else 0.
local function renew(keys, args)
  if redis.call('GET', keys[5]) ~= args[1] then return 0 end
  return redis.call('PEXPIRE', keys[5], args[2])
end

-- unlock: ARGV token. Reply 1.
local function unlock(keys, args)
  unlock_if(keys, args[1])
  return 1
end

-- older reports whether the version at may not replace the newest one.
local function older(entry, at, token)
  local e, s = position(at)
  local ne, ns = position(entry.at)
  if e ~= ne then return e < ne end
  if s ~= ns then return s < ns end
  return tonumber(token) <= entry.token
end

-- put: ARGV tile, token, at, base, budget of the group in bytes, grace in milliseconds, channel, tail, snapshot. An
-- empty tail confirms at; an empty snapshot says that the one of base is here. Reply: a verdict, as package viewcache
-- numbers them, or 0 for arguments that are none.
local function put(keys, args)
  local tile, token, at, base = args[1], args[2], args[3], args[4]
  local share, grace, channel, tail, snapshot = tonumber(args[5]), tonumber(args[6]), args[7], args[8], args[9]
  if not position(at) or not position(base) or not number(token) or not share or not grace then return 0 end
  local clock = now()
  whole(keys)
  reclaim(keys, clock)
  local entry = newest(keys, tile)
  if entry and entry.at == at then
    note(keys, channel, tile, at, entry.base, clock, text(math.max(entry.token, tonumber(token))))
    unlock_if(keys, token)
    return 2
  end
  local verdict
  local need = #tail + #snapshot + COST * (snapshot == '' and 1 or 2)
  if entry and older(entry, at, token) then
    verdict = 3
  elseif tail == '' then
    verdict = 6
  elseif snapshot == '' and base ~= ORIGIN and redis.call('HEXISTS', keys[2], base_of(tile, base)) == 0 then
    return 4
  elseif need > share / 4 or not room_for(keys, tile, at, base, need, share) then
    verdict = 5
  end
  unlock_if(keys, token)
  if verdict then return verdict end
  if entry then
    local ends = clock + grace * 1000
    redis.call('ZADD', keys[4], text(ends), tail_of(tile, entry.at))
    if entry.base ~= base and entry.base ~= ORIGIN then
      redis.call('ZADD', keys[4], text(ends + 1), base_of(tile, entry.base))
    end
  end
  set(keys, tail_of(tile, at), tail)
  if snapshot ~= '' then set(keys, base_of(tile, base), snapshot) end
  note(keys, channel, tile, at, base, clock, token)
  return 1
end

-- drop: ARGV tile, position. Removes the newest version if it is that one. Reply 1.
local function drop(keys, args)
  local entry = newest(keys, args[1])
  if entry and entry.at == args[2] then forget(keys, args[1], entry) end
  return 1
end

-- usage: Reply {bytes, tiles, values of superseded versions, values evicted}.
local function usage(keys)
  local own = redis.call('HMGET', keys[1], '#bytes', '#evicted')
  local tiles, old = redis.call('ZCARD', keys[3]), redis.call('ZCARD', keys[4])
  return {tonumber(own[1] or 0), math.max(0, tiles - 1), math.max(0, old - 1), tonumber(own[2] or 0)}
end

-- What makes room, or changes a few bytes, runs on a server that is out of memory too.
local ALWAYS = {'allow-oom'}
redis.register_function{function_name = PREFIX .. 'find', callback = find, flags = ALWAYS}
redis.register_function{function_name = PREFIX .. 'lock', callback = lock, flags = ALWAYS}
redis.register_function{function_name = PREFIX .. 'renew', callback = renew, flags = ALWAYS}
redis.register_function{function_name = PREFIX .. 'unlock', callback = unlock, flags = ALWAYS}
redis.register_function{function_name = PREFIX .. 'drop', callback = drop, flags = ALWAYS}
redis.register_function(PREFIX .. 'put', put)
redis.register_function{function_name = PREFIX .. 'usage', callback = usage, flags = {'no-writes'}}
