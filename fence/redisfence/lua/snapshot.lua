-- snapshot. Replaces the tile's snapshot, under the owner's epoch.
-- KEYS  1 owner  2 stream  3 snapshot
-- ARGV  1 position, in the stream; its epoch is the writer's  2 tick  3 checksum of the blob  4 blob
-- Reply 'ok'; refusals as commit's, with code stale, noowner, regress (a later snapshot exists: a higher seq, or the
--       same at a higher tick), uncommitted (the position is not in the stream, or the tick was never committed) or
--       checksum (the blob was damaged on its way); {'invalid', what}; {'corrupt', what}.
local function snapshot(keys, args)
  local epoch, seq, chain = position(args[1])
  if not epoch or epoch == '0' or seq == '0' then return invalid('position') end
  local tick = number(args[2])
  if not tick then return invalid('tick') end
  if not args[4] or #args[4] > 16777216 then return invalid('blob') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  if not owner then
    local last, bad = last_of(keys[2], keys[3])
    if bad then return {'corrupt', bad} end
    return refusal('noowner', owner, last)
  end
  local e, s, current = tonumber(epoch), tonumber(seq), tonumber((position(owner[1])))
  if e > current then return refusal('noowner', owner) end
  if e < current then return refusal('stale', owner) end
  local have = redis.call('HMGET', keys[3], 'seq', 'tick')
  if have[1] then
    local hs, ht = number(have[1]), number(have[2])
    if not hs or not ht then return {'corrupt', 'the snapshot has no readable seq and tick'} end
    if hs > s or (hs == s and ht > tick) then return refusal('regress', owner) end
  end
  if tick > tonumber(owner[2]) then return refusal('uncommitted', owner) end
  if owner[1] ~= args[1] then
    local r = redis.call('XRANGE', keys[2], seq .. '-0', seq .. '-0')
    if not r[1] or position_of(r[1]) ~= args[1] then return refusal('uncommitted', owner) end
  end
  if redis.sha1hex(args[4]) ~= args[3] then return refusal('checksum', owner) end
  redis.call('HSET', keys[3], 'epoch', epoch, 'seq', seq, 'chain', chain, 'tick', args[2],
    'contact', owner[3], 'sum', args[3], 'at', now(), 'blob', args[4])
  return 'ok'
end
