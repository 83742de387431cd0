-- commit, revision with the library. Appends one batch under its epoch, or refreshes the owner hash.
-- KEYS  1 owner  2 stream  3 snapshot
-- ARGV  1 epoch  2 contact  3 install '0' or '1'  4 prev epoch/seq/chain  5 seq (prev's + 1; prev's own for
--       a refresh)  6 chain after the batch  7 tick  8 events  9 payload  10 time to live, ms
-- Reply {'ok', epoch, seq, chain} appended; {'again', …} it was already the last entry; else a refusal
--       {code, epoch, seq, chain, contact, tick, epoch of the last entry} with code stale, replay, behind,
--       forked or noowner; {'invalid', what}; {'corrupt', what}. Only 'ok' and 'again' write.
local function commit(keys, args)
  local e, install, prev, seq, chain, events, ttl = number(args[1]), args[3], args[4], args[5], args[6], number(args[8]), number(args[10])
  if not e or e == 0 then return invalid('epoch') end
  if not is_contact(args[2]) then return invalid('contact') end
  if install ~= '0' and install ~= '1' then return invalid('install') end
  local next_seq = number(seq)
  if not next_seq then return invalid('seq') end
  if not is_chain(chain) then return invalid('chain') end
  if not number(args[7]) then return invalid('tick') end
  if not events or events > 1048576 then return invalid('events') end
  if not args[9] or #args[9] > 1048576 then return invalid('payload') end
  if not ttl or ttl == 0 then return invalid('ttl') end
  local refresh = events == 0 and install == '0'
  if refresh and #args[9] > 0 then return invalid('payload') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  local le, ls, lc -- where the history ends
  if owner then
    le, ls, lc = owner[1], owner[2], owner[3]
  else
    le, ls, lc, why = last_of(keys[2], keys[3])
    if why then return {'corrupt', why} end
    if install == '0' then return refusal('noowner', nil, le, ls, lc) end
  end
  local current, last = tonumber(le), tonumber(ls)
  if e < current then return refusal('stale', owner, le, ls, lc) end

  local code = 'ok'
  if not refresh and e == current and last == next_seq and lc == chain then
    code = 'again'
  elseif (le .. '/' .. ls .. '/' .. lc) ~= prev then
    local pe, ps, pc = string.match(prev or '', '^(%d+)/(%d+)/(%x+)$')
    if not number(pe) or not number(ps) or not is_chain(pc) then return invalid('prev') end
    if last < tonumber(ps) then return refusal('behind', owner, le, ls, lc) end
    if e > current and install == '0' then return refusal('noowner', owner, le, ls, lc) end
    if current < e then return refusal('replay', owner, le, ls, lc) end
    return refusal('forked', owner, le, ls, lc)
  elseif e > current and install == '0' then
    return refusal('noowner', owner, le, ls, lc)
  elseif refresh then
    if seq ~= ls or chain ~= lc then return invalid('seq') end
  else
    if next_seq ~= last + 1 then return invalid('seq') end
    why = append(keys[2], seq .. '-0', 'epoch', args[1], 'chain', chain, 'prev', prev,
      'tick', args[7], 'events', args[8], 'at', now(), 'payload', args[9])
    if why then return {'corrupt', why} end
  end
  if owner and e == current then
    redis.call('HSET', keys[1], 'contact', args[2], 'seq', seq, 'chain', chain, 'tick', later(owner[5], args[7]))
  else
    redis.call('HSET', keys[1], 'epoch', args[1], 'contact', args[2], 'seq', seq, 'chain', chain, 'tick', args[7])
  end
  redis.call('PEXPIRE', keys[1], args[10])
  return {code, args[1], seq, chain}
end
