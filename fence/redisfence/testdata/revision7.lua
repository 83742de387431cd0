#!lua name=tilefence_r7
-- The commit function of revision 7, for BenchmarkPipelined to compare with.

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
  if not number(o[1]) or o[1] == '0' or not number(o[2]) or not is_chain(o[3]) or not is_contact(o[4])
    or not number(o[5]) then
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

-- commit, revision with the library. Appends one batch under its epoch, or refreshes the owner hash.
-- KEYS  1 owner  2 stream  3 snapshot
-- ARGV  1 epoch  2 contact  3 install '0' or '1'  4 prev epoch/seq/chain  5 seq (prev's + 1; prev's own for
--       a refresh)  6 chain after the batch  7 tick  8 events  9 payload  10 time to live, ms
-- Reply {'ok', epoch, seq, chain} appended; {'again', …} it was already the last entry; else a refusal
--       {code, epoch, seq, chain, contact, tick, epoch of the last entry} with code stale, replay, behind,
--       forked or noowner; {'invalid', what}; {'corrupt', what}. Only 'ok' and 'again' write.

-- judge is every row of the table but the commonest, which is an owner's next batch. It returns the code
-- 'ok' or 'again', where the history ends, and the owner hash if it is of the presented epoch; or nil and
-- the reply that ends the call.
local function judge(keys, args, o, refresh)
  local e, prev = number(args[1]), args[4]
  if not e or e == 0 then return nil, invalid('epoch') end
  local pe, ps, pc = (prev or ''):match('^(%d+)/(%d+)/(%x+)$')
  if not number(pe) or not number(ps) or not is_chain(pc) then return nil, invalid('prev') end
  local present, why = readable(o)
  if present == nil then return nil, {'corrupt', why} end
  local le, ls, lc = o[1], o[2], o[3]
  if not present then
    o = nil
    le, ls, lc, why = last_of(keys[2], keys[3])
    if why then return nil, {'corrupt', why} end
    if args[3] == '0' then return nil, refusal('noowner', nil, le, ls, lc) end
  end

  local current, last = tonumber(le), tonumber(ls)
  local code
  if e < current then
    code = 'stale'
  elseif present and e == current and o[4] ~= args[2] then
    code = 'forked' -- an authority that was restored has granted the epoch twice
  elseif not refresh and e == current and ls == args[5] and lc == args[6] then
    return 'again', ls, o
  elseif last < tonumber(ps) then
    code = 'behind'
  elseif e > current and args[3] == '0' then
    code = 'noowner'
  elseif le == pe and ls == ps and lc == pc then
    return 'ok', ls, e == current and o
  elseif e > current then
    code = 'replay'
  else
    code = 'forked'
  end
  return nil, refusal(code, o, le, ls, lc)
end

local function commit(keys, args)
  local epoch, contact, prev, seq, chain, tick, ttl = args[1], args[2], args[4], args[5], args[6], args[7], args[10]
  local n, events, payload = number(seq), number(args[8]), args[9]
  if not is_contact(contact) then return invalid('contact') end
  if args[3] ~= '0' and args[3] ~= '1' then return invalid('install') end
  if not n then return invalid('seq') end
  if not is_chain(chain) then return invalid('chain') end
  if not number(tick) then return invalid('tick') end
  if not events or events > 1048576 then return invalid('events') end
  local refresh = events == 0 and args[3] == '0'
  if not payload or #payload > 1048576 or (refresh and #payload > 0) then return invalid('payload') end
  if (number(ttl) or 0) == 0 then return invalid('ttl') end

  local o = owner_hash(keys[1])
  local code, last = 'ok', o[2]
  if o[1] ~= epoch or not last or not o[3] or o[4] ~= contact or not number(o[5])
    or prev ~= epoch .. '/' .. last .. '/' .. o[3] then
    local rest
    code, last, rest = judge(keys, args, o, refresh)
    if not code then return last end
    o = rest
  end
  if refresh then
    if seq ~= last or chain ~= o[3] then return invalid('seq') end
  elseif code == 'ok' then
    if n ~= tonumber(last) + 1 then return invalid('seq') end
    local why = append(keys[2], seq .. '-0', 'epoch', epoch, 'chain', chain, 'prev', prev,
      'tick', tick, 'events', args[8], 'at', now(), 'payload', payload)
    if why then return {'corrupt', why} end
  end
  if o then
    keep(keys[1], o, seq, chain, tick, ttl)
  else
    own(keys[1], epoch, contact, seq, chain, tick, ttl)
  end
  return {code, epoch, seq, chain}
end

redis.register_function('tilefence_r7_commit_v1', commit)
