-- rebase. Installs an owner from state: snapshot, marker entry, sequence jump and owner hash in one step.
-- KEYS  1 owner  2 stream  3 snapshot
-- ARGV  1 epoch  2 contact  3 seq of the marker  4 chain of the marker  5 tick  6 checksum of the blob
--       7 blob  8 time to live, ms  9 '1' if the caller found nothing of the tile, else '0'
-- Reply {'ok', epoch, seq, chain}; {'again', …} the same rebase is already the last entry, at its own
--       sequence; refusals as commit's, with code stale (an epoch as high is known), behind (the stream
--       goes further, or there is a history after all) or checksum (the blob was damaged on its way); {'invalid', what}; {'corrupt', what}.
local function rebase(keys, args)
  local e, s, ttl = number(args[1]), number(args[3]), number(args[8])
  if not e or e == 0 then return invalid('epoch') end
  if not is_contact(args[2]) then return invalid('contact') end
  if not s or s == 0 then return invalid('seq') end
  if not is_chain(args[4]) then return invalid('chain') end
  if not number(args[5]) then return invalid('tick') end
  if not args[7] or #args[7] > 16777216 then return invalid('blob') end
  if not ttl or ttl == 0 then return invalid('ttl') end
  if args[9] ~= '0' and args[9] ~= '1' then return invalid('blank') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  local le, ls, lc
  if owner then
    le, ls, lc = owner[1], owner[2], owner[3]
  else
    le, ls, lc, why = last_of(keys[2], keys[3])
    if why then return {'corrupt', why} end
  end
  if e == tonumber(le) and lc == args[4] and not (owner and owner[4] ~= args[2]) then
    if owner then
      keep(keys[1], owner, ls, lc, args[5], args[8])
    else
      own(keys[1], args[1], args[2], ls, lc, args[5], args[8])
    end
    return {'again', args[1], ls, lc}
  end
  local known = redis.call('HGET', keys[3], 'epoch')
  if known and not number(known) then return {'corrupt', 'the snapshot has no readable epoch'} end
  if e <= tonumber(le) or (known and e <= tonumber(known)) then
    return refusal('stale', owner, le, ls, lc)
  end
  if s <= tonumber(ls) or (args[9] == '1' and ls ~= '0') then return refusal('behind', owner, le, ls, lc) end
  if redis.sha1hex(args[7]) ~= args[6] then return refusal('checksum', owner, le, ls, lc) end

  local at = now()
  why = append(keys[2], args[3] .. '-0', 'epoch', args[1], 'chain', args[4], 'prev', le .. '/' .. ls .. '/' .. lc,
    'tick', args[5], 'events', '0', 'at', at, 'payload', args[6], 'rebase', '1')
  if why then return {'corrupt', why} end
  redis.call('HSET', keys[3], 'epoch', args[1], 'seq', args[3], 'chain', args[4], 'tick', args[5],
    'contact', args[2], 'sum', args[6], 'at', at, 'blob', args[7])
  own(keys[1], args[1], args[2], args[3], args[4], args[5], args[8])
  return {'ok', args[1], args[3], args[4]}
end
