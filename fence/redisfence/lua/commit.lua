-- commit, revision with the library. Appends one entry under its epoch, or refreshes the owner hash.
-- KEYS  1 owner  2 stream  3 snapshot; for an install also  4 marks  5 dead letters
-- ARGV  1 epoch  2 contact  3 mode: 'append', 'install' or 'refresh'  4 prev, a position  5 next, the position after
--       it (prev itself for a refresh)  6 tick  7 frame: the encoded entry, '' for a refresh  8 time to live, ms;
--       '0' leaves it as it is, for a batch that appends
-- Reply 'ok', written; 'again', it was already the last entry; else a refusal {code, position, contact, tick}
--       with code stale, replay, behind, forked or noowner; {'invalid', what}; {'corrupt', what}. Only 'ok' and
--       'again' write.

local MAX_FRAME = 1048576 + 96

-- judge handles every row of the table in docs/wire.md except an owner's next batch. It returns 'ok' or 'again', and
-- the owner hash {position, tick, contact} if it is of the presented epoch; or nil and the reply that ends the call.
local function judge(keys, args)
  local e = number(args[1])
  if not e or e == 0 then return nil, invalid('epoch') end
  local pe, ps = position(args[4])
  if not pe then return nil, invalid('prev') end
  local o, why = read_owner(keys[1])
  if o == nil then return nil, {'corrupt', why} end
  local last = o and o[1]
  if not o then
    last, why = last_of(keys[2], keys[3])
    if why then return nil, {'corrupt', why} end
    if args[3] ~= 'install' then return nil, refusal('noowner', o, last) end
  end
  local le, ls = position(last)
  local current = tonumber(le)
  local code
  if e < current then
    code = 'stale'
  elseif o and e == current and o[3] ~= args[2] then
    code = 'forked' -- an authority that was restored has granted the epoch twice
  elseif args[3] ~= 'refresh' and last == args[5] then
    return 'again', o
  elseif tonumber(ls) < tonumber(ps) then
    code = 'behind'
  elseif e > current and args[3] ~= 'install' then
    code = 'noowner'
  elseif last == args[4] then
    return 'ok', e == current and o
  elseif e > current then
    code = 'replay'
  else
    code = 'forked'
  end
  return nil, refusal(code, o, last)
end

-- follows reports whether next is a position of an epoch that comes after a position of sequence s; for a refresh,
-- whether next is prev.
local function follows(epoch, prev, next, refresh)
  if refresh then return prev == next end
  local e, s, c = next:match('^(%d+)/(%d+)/(%x+)$')
  local ps = prev:match('/(%d+)/')
  return e == epoch and number(s) == tonumber(ps) + 1 and is_chain(c) and s
end

-- expected is the fast path: the sequence of an owner's next batch if the owner hash is as it expects and every
-- argument is in order; otherwise nil, and the slow path says why.
local function expected(keys, args)
  local prev, frame = args[4], args[7]
  local h = redis.call('HMGET', keys[1], 'head', 'contact')
  if not prev or h[1] ~= prev or h[2] ~= args[2] or not frame then return nil end
  local e, s = prev:match('^(%d+)/(%d+)/')
  local ne, ns, nc = args[5]:match('^(%d+)/([1-9]%d*)/([0-9a-f]+)$')
  if ne ~= e or e ~= args[1] or #nc ~= 16 or tonumber(ns) ~= tonumber(s) + 1 then return nil end
  if frame == '' or #frame > MAX_FRAME or tonumber(ns) > MAX then return nil end
  if not number(args[6]) or not number(args[8]) then return nil end
  return ns
end

-- slow is every other call: it checks each argument by itself, and names the first that is wrong.
local function slow(keys, args)
  local mode, prev, next, frame = args[3], args[4], args[5], args[7]
  if not is_contact(args[2]) then return invalid('contact') end
  local refresh = mode == 'refresh'
  if not refresh and mode ~= 'append' and mode ~= 'install' then return invalid('mode') end
  if not number(args[6]) then return invalid('tick') end
  if not frame or #frame > MAX_FRAME or refresh ~= (frame == '') then return invalid('frame') end
  if not number(args[8]) or (args[8] == '0' and mode ~= 'append') then return invalid('ttl') end

  local code, o = judge(keys, args)
  if not code then return o end
  local seq = next and follows(args[1], prev, next, refresh)
  if not seq then return invalid('next') end
  if code == 'ok' and not refresh then
    local why = append(keys[2], seq .. '-0', frame)
    if why then return {'corrupt', why} end
  end
  local tick = args[6]
  if o then
    if refresh or code == 'again' then tick = later(o[2], tick) end -- it may have been delayed on its way
    redis.call('HSET', keys[1], 'head', next, 'tick', tick)
  else
    redis.call('HSET', keys[1], 'head', next, 'tick', tick, 'contact', args[2])
    keep(keys)
  end
  if args[8] ~= '0' then redis.call('PEXPIRE', keys[1], args[8]) end
  return code
end

local function commit(keys, args)
  local seq = args[3] == 'append' and expected(keys, args)
  if not seq then return slow(keys, args) end
  local why = append(keys[2], seq .. '-0', args[7])
  if why then return {'corrupt', why} end
  redis.call('HSET', keys[1], 'head', args[5], 'tick', args[6])
  if args[8] ~= '0' then redis.call('PEXPIRE', keys[1], args[8]) end
  return 'ok'
end
