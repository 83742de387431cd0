-- Shared by all functions of the library. Numbers travel as decimal strings and are compared as doubles,
-- exact up to 2^53-1; whoever calls makes them, Lua formats none but the clock.

local MAX = 9007199254740991

-- number returns s as a number if it is a plain decimal from 0 to MAX, else nil.
local function number(s)
  local n = tonumber(s)
  if n and n <= MAX and (s:find('^[1-9]%d*$') or s == '0') then return n end
end

local function is_chain(s)
  return s and #s == 16 and not s:find('[^0-9a-f]')
end

local function is_contact(s)
  return s and #s > 0 and #s <= 255
end

local function invalid(what)
  return {'invalid', what}
end

-- now is the server's clock in milliseconds.
local function now()
  local t = redis.call('TIME')
  local micro = t[2]
  local digits = #micro
  if digits < 6 then
    micro = ('00000'):sub(digits) .. micro
  end
  return t[1] .. micro:sub(1, 3)
end

-- last_of returns epoch, seq and chain of the place where the tile's history ends when there is no owner
-- hash to say so: the later of the stream's last entry and the snapshot. Absent is not epoch zero. The
-- fourth result is a complaint about stored data.
local function last_of(stream, snapshot)
  local epoch, seq, chain = '0', '0', '0000000000000000'
  local r = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  if r[1] then
    seq = string.match(r[1][1], '^(%d+)%-0$')
    epoch, chain = nil, nil
    local f = r[1][2]
    for i = 1, #f, 2 do
      if f[i] == 'epoch' then epoch = f[i + 1] elseif f[i] == 'chain' then chain = f[i + 1] end
    end
    if not number(seq) or not number(epoch) or not is_chain(chain) then
      return nil, nil, nil, 'the last stream entry has no readable id, epoch and chain'
    end
  end
  local s = redis.call('HMGET', snapshot, 'epoch', 'seq', 'chain')
  if s[2] then
    if not number(s[1]) or not number(s[2]) or not is_chain(s[3]) then
      return nil, nil, nil, 'the snapshot has no readable epoch, seq and chain'
    end
    if tonumber(s[2]) > tonumber(seq) then epoch, seq, chain = s[1], s[2], s[3] end
  end
  return epoch, seq, chain, nil
end

-- owner_hash reads the owner hash as a table {epoch, seq, chain, contact, tick}, false where it has nothing.
local function owner_hash(key)
  return redis.call('HMGET', key, 'epoch', 'seq', 'chain', 'contact', 'tick')
end

-- readable judges what owner_hash read: true, false when there is no owner hash, or nil and a complaint; the
-- caller then writes nothing.
local function readable(o)
  if not o[1] and not o[2] and not o[3] and not o[4] and not o[5] then return false end
  if not number(o[1]) or o[1] == '0' or not number(o[2]) or not is_chain(o[3]) or not is_contact(o[4]) or not number(o[5]) then
    return nil, 'the owner hash lacks a readable epoch, seq, chain, contact or tick'
  end
  return true
end

-- read_owner returns the owner hash, false when there is none, or nil and a complaint.
local function read_owner(key)
  local o = owner_hash(key)
  local ok, why = readable(o)
  return ok and o, why
end

-- own writes the whole owner hash and starts its time to live.
local function own(key, epoch, contact, seq, chain, tick, ttl)
  redis.call('HSET', key, 'epoch', epoch, 'contact', contact, 'seq', seq, 'chain', chain, 'tick', tick)
  redis.call('PEXPIRE', key, ttl)
end

-- keep moves the owner hash o on under the same epoch and contact. The tick does not go back: a commit that was delayed
-- on its way may still be recognised, or refresh, after later ticks.
local function keep(key, o, seq, chain, tick, ttl)
  if tonumber(o[5]) > tonumber(tick) then tick = o[5] end
  redis.call('HSET', key, 'seq', seq, 'chain', chain, 'tick', tick)
  redis.call('PEXPIRE', key, ttl)
end

-- append adds an entry to the stream: nil, or a complaint when Redis refuses it because the stream goes past
-- what the owner hash says or is no stream. Any other error ends the call. Nothing has been written then.
local function append(stream, ...)
  local r = redis.pcall('XADD', stream, ...)
  if type(r) ~= 'table' or not r.err then return nil end
  if r.err:find('equal or smaller', 1, true) or r.err:find('WRONGTYPE', 1, true) then
    return 'the stream does not end where the tile\'s history does: ' .. r.err
  end
  error(r.err)
end

-- refusal replies {code, epoch, seq, chain, contact, tick, epoch of the position}. With an owner hash all
-- of it is the owner's; without one epoch is '0', the contact empty, and the position is where the history
-- ends.
local function refusal(code, owner, epoch, seq, chain)
  if owner then return {code, owner[1], owner[2], owner[3], owner[4], owner[5], owner[1]} end
  return {code, '0', seq, chain, '', '0', epoch}
end
