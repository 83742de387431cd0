-- snapshot. Replaces the tile's snapshot, under the owner's epoch.
-- KEYS  1 owner  2 stream  3 snapshot
-- ARGV  1 epoch  2 seq  3 chain  (a position in the stream)  4 tick  5 checksum of the blob  6 blob
-- Reply {'ok', epoch, seq, chain}; refusals as commit's, with code stale, noowner, regress (a later snapshot
--       exists: a higher seq, or the same at a higher tick), uncommitted (the position is not in the stream,
--       or the tick was never committed) or checksum (the blob was damaged on its way); {'invalid', what};
--       {'corrupt', what}.
local function snapshot(keys, args)
  local e, s, tick = number(args[1]), number(args[2]), number(args[4])
  if not e or e == 0 then return invalid('epoch') end
  if not s or s == 0 then return invalid('seq') end
  if not is_chain(args[3]) then return invalid('chain') end
  if not tick then return invalid('tick') end
  if not args[6] or #args[6] > 16777216 then return invalid('blob') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  if not owner then
    local le, ls, lc, bad = last_of(keys[2], keys[3])
    if bad then return {'corrupt', bad} end
    return refusal('noowner', nil, le, ls, lc)
  end
  if e > tonumber(owner[1]) then return refusal('noowner', owner) end
  if e < tonumber(owner[1]) then return refusal('stale', owner) end
  local have = redis.call('HMGET', keys[3], 'seq', 'tick')
  if have[1] then
    local hs, ht = number(have[1]), number(have[2])
    if not hs or not ht then return {'corrupt', 'the snapshot has no readable seq and tick'} end
    if hs > s or (hs == s and ht > tick) then return refusal('regress', owner) end
  end
  if tick > tonumber(owner[5]) then return refusal('uncommitted', owner) end
  if owner[2] ~= args[2] or owner[3] ~= args[3] then
    local r = redis.call('XRANGE', keys[2], args[2] .. '-0', args[2] .. '-0')
    local epoch, chain
    if r[1] then
      local f = r[1][2]
      for i = 1, #f, 2 do
        if f[i] == 'epoch' then epoch = f[i + 1] elseif f[i] == 'chain' then chain = f[i + 1] end
      end
    end
    if epoch ~= args[1] or chain ~= args[3] then return refusal('uncommitted', owner) end
  end
  if redis.sha1hex(args[6]) ~= args[5] then return refusal('checksum', owner) end
  redis.call('HSET', keys[3], 'epoch', args[1], 'seq', args[2], 'chain', args[3], 'tick', args[4],
    'contact', owner[4], 'sum', args[5], 'at', now(), 'blob', args[6])
  return {'ok', args[1], args[2], args[3]}
end
