-- Shared by all functions of the library. Numbers travel as decimal strings and are compared as doubles,
-- exact up to 2^53-1; whoever calls makes them, Lua never formats one.

local MAX = 9007199254740991

-- number returns s as a number if it is a plain decimal from 0 to MAX, else nil.
local function number(s)
  if type(s) ~= 'string' or #s > 16 or not string.find(s, '^%d+$') then return nil end
  if #s > 1 and string.byte(s) == 48 then return nil end
  local n = tonumber(s)
  if n > MAX then return nil end
  return n
end

local function is_chain(s)
  return type(s) == 'string' and #s == 16 and not string.find(s, '[^0-9a-f]')
end

local function is_contact(s)
  return type(s) == 'string' and #s > 0 and #s <= 255
end

local function invalid(what)
  return {'invalid', what}
end

local function now()
  local t = redis.call('TIME')
  return t[1] .. string.format('%03d', math.floor(tonumber(t[2]) / 1000))
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

-- read_owner returns the owner hash as a table {epoch, seq, chain, contact, tick}, false when there is
-- none, or nil and a complaint when it cannot be read: the caller then writes nothing.
local function read_owner(key)
  local o = redis.call('HMGET', key, 'epoch', 'seq', 'chain', 'contact', 'tick')
  if not o[1] and not o[2] and not o[3] and not o[4] and not o[5] then return false end
  if not number(o[1]) or o[1] == '0' or not number(o[2]) or not is_chain(o[3]) or not is_contact(o[4]) or not number(o[5]) then
    return nil, 'the owner hash lacks a readable epoch, seq, chain, contact or tick'
  end
  return o
end

-- later returns the higher of two ticks. Under one epoch the owner hash's does not go back: a commit that was
-- delayed on its way may still be recognised, or refresh, after later ticks.
local function later(a, b)
  if tonumber(a) > tonumber(b) then return a end
  return b
end

-- append adds an entry to the stream: nil, or a complaint when Redis refuses it, which it does only when
-- the stream goes past what the owner hash says or is no stream. Nothing has been written then.
local function append(stream, ...)
  local r = redis.pcall('XADD', stream, ...)
  if type(r) == 'table' and r.err then return 'the stream does not end where the tile\'s history does: ' .. r.err end
end

-- refusal replies {code, epoch, seq, chain, contact, tick, epoch of the position}. With an owner hash all
-- of it is the owner's; without one epoch is '0', the contact empty, and the position is where the history
-- ends.
local function refusal(code, owner, epoch, seq, chain)
  if owner then return {code, owner[1], owner[2], owner[3], owner[4], owner[5], owner[1]} end
  return {code, '0', seq, chain, '', '0', epoch}
end
