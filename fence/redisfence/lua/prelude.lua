-- Shared by all functions of the library. Numbers travel as decimal strings and are compared as doubles,
-- exact up to 2^53-1. The caller formats them; Lua formats only the clock and epochs read from frames.

local MAX = 9007199254740991

-- number returns s as a number if it is a plain decimal from 0 to MAX, else nil.
local function number(s)
  local n = tonumber(s)
  if n and n <= MAX and (s:find('^[1-9]%d*$') or s == '0') then return n end
end

-- sequence is number for a sequence: nil above 2^52, where no tile comes.
local function sequence(s)
  local n = number(s)
  if n and n <= 4503599627370496 then return n end
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

-- position takes a position apart: epoch, sequence and chain as texts; nothing if it is none.
local function position(text)
  local e, s, c = (text or ''):match('^(%d+)/(%d+)/(%x+)$')
  if number(e) and number(s) and is_chain(c) then return e, s, c end
end

-- later returns the higher of two numbers, as its text.
local function later(a, b)
  return tonumber(a) > tonumber(b) and a or b
end

-- varint reads an unsigned LEB128 number at i, and where the next byte is; nil if it is cut short or over 2^53-1.
local function varint(s, i)
  local n, scale = 0, 1
  for at = i, i + 7 do
    local b = s:byte(at)
    if not b then return nil end
    n = n + b % 128 * scale
    if b < 128 then return n <= MAX and n or nil, at + 1 end
    scale = scale * 128
  end
end

-- position_of reads the position of a stream entry {id, {'f', frame}} from its frame (docs/wire.md); nil if it cannot
-- be read, or if the frame is not of this place in the stream.
local function position_of(entry)
  local id = entry[1]:match('^(%d+)%-0$')
  local f = entry[2][1] == 'f' and entry[2][2] or ''
  if not number(id) or #f < 32 or f:byte(1) ~= 1 then return nil end
  local e, at = varint(f, 27)
  local s = e and varint(f, at)
  if not s or e == 0 or s ~= tonumber(id) then return nil end
  return ('%.0f/%s/%s'):format(e, id, ('%02x'):rep(8):format(f:byte(11, 18)))
end

-- last_of returns the position at which the tile's history ends when there is no owner hash to say so: the later of
-- the stream's last entry and the snapshot. Absent is not epoch zero. The second result is a complaint about stored
-- data.
local function last_of(stream, snapshot)
  local last = '0/0/0000000000000000'
  local r = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)
  if r[1] then
    last = position_of(r[1])
    if not last then return nil, 'the last stream entry has no readable id and frame' end
  end
  local s = redis.call('HMGET', snapshot, 'epoch', 'seq', 'chain')
  if s[2] then
    local text = table.concat({s[1] or '', s[2], s[3] or ''}, '/')
    local _, seq = position(text)
    if not seq then return nil, 'the snapshot has no readable epoch, seq and chain' end
    local _, ls = position(last)
    if tonumber(seq) > tonumber(ls) then last = text end
  end
  return last
end

-- read_owner returns the owner hash as {position, tick, contact}, false when there is none, or nil and a complaint; the
-- caller then writes nothing.
local function read_owner(key)
  local o = redis.call('HMGET', key, 'head', 'tick', 'contact')
  if not o[1] and not o[2] and not o[3] then return false end
  local e = o[1] and position(o[1])
  if not e or e == '0' or not number(o[2]) or not is_contact(o[3]) then
    return nil, 'the owner hash lacks a readable head, tick or contact'
  end
  return o
end

-- own writes the whole owner hash and starts its time to live.
local function own(key, head, tick, contact, ttl)
  redis.call('HSET', key, 'head', head, 'tick', tick, 'contact', contact)
  redis.call('PEXPIRE', key, ttl)
end

-- keep ends the time to live that expire gave to a tile whose owner is back.
local function keep(keys)
  for i = 2, #keys do
    redis.call('PERSIST', keys[i])
  end
end

-- append adds an entry to the stream: nil, or a complaint when Redis refuses it because the stream goes past
-- what the owner hash says or is no stream. Any other error ends the call. Nothing has been written then.
local function append(stream, id, frame)
  local r = redis.pcall('XADD', stream, id, 'f', frame)
  if type(r) ~= 'table' or not r.err then return nil end
  if r.err:find('equal or smaller', 1, true) or r.err:find('WRONGTYPE', 1, true) then
    return 'the stream does not end where the tile\'s history does: ' .. r.err
  end
  error(r.err)
end

-- refusal replies {code, position, contact, tick}: the owner hash or, when there is none (false), the position at which
-- the history ends, an empty contact and tick 0.
local function refusal(code, owner, last)
  if owner then return {code, owner[1], owner[3], owner[2]} end
  return {code, last, '', '0'}
end
