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
  if o[1] ~= epoch or not last or not o[3] or o[4] ~= contact or not number(o[5]) or prev ~= epoch .. '/' .. last .. '/' .. o[3] then
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
