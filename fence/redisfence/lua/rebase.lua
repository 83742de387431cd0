-- rebase. Installs an owner from state: snapshot, marker entry, sequence jump and owner hash in one step.
-- KEYS  1 owner  2 stream  3 snapshot  4 marks  5 dead letters
-- ARGV  1 contact  2 position of the marker  3 tick  4 frame: the encoded marker  5 checksum of the blob  6 blob
--       7 time to live, ms  8 where the history ends that is replaced, '0/0/0000000000000000'
--       if nothing is there; '0' for whatever is there; '1', of callers before revision 12, is nothing
-- Reply 'ok'; {'again', position} the same rebase is already the last entry, at its own sequence; refusals as commit's,
--       with code stale (an epoch as high is known), behind (the stream goes further, or there is a history after
--       all) or checksum (the blob was damaged on its way); {'invalid', what}; {'corrupt', what}.
local function rebase(keys, args)
  local epoch, seq, chain = position(args[2])
  if not epoch or epoch == '0' or seq == '0' then return invalid('position') end
  if not is_contact(args[1]) then return invalid('contact') end
  if not number(args[3]) then return invalid('tick') end
  if not args[4] or args[4] == '' or #args[4] > MAX_FRAME then return invalid('frame') end
  if not args[6] or #args[6] > 16777216 then return invalid('blob') end
  if (number(args[7]) or 0) == 0 then return invalid('ttl') end
  local any, re, rs, rc = args[8] == '0', position(args[8] == '1' and '0/0/0000000000000000' or args[8] or '')
  if not any and not re then return invalid('replaces') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  local last = owner and owner[1]
  if not owner then
    last, why = last_of(keys[2], keys[3])
    if why then return {'corrupt', why} end
  end
  local e, s = tonumber(epoch), tonumber(seq)
  local le, ls, lc = position(last)
  if le == epoch and lc == chain and not (owner and owner[3] ~= args[1]) then
    keep(keys)
    own(keys[1], last, owner and later(owner[2], args[3]) or args[3], args[1], args[7])
    return {'again', last}
  end
  local known = redis.call('HGET', keys[3], 'epoch')
  if known and not number(known) then return {'corrupt', 'the snapshot has no readable epoch'} end
  if e <= tonumber(le) or (known and e <= tonumber(known)) then return refusal('stale', owner, last) end
  local elsewhere = not any and (re ~= le or rs ~= ls or rc ~= lc)
  if s <= tonumber(ls) or elsewhere then return refusal('behind', owner, last) end
  if redis.sha1hex(args[6]) ~= args[5] then return refusal('checksum', owner, last) end

  why = append(keys[2], seq .. '-0', args[4])
  if why then return {'corrupt', why} end
  redis.call('HSET', keys[3], 'epoch', epoch, 'seq', seq, 'chain', chain, 'tick', args[3],
    'contact', args[1], 'sum', args[5], 'at', now(), 'blob', args[6])
  keep(keys)
  own(keys[1], args[2], args[3], args[1], args[7])
  return 'ok'
end
