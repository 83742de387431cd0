-- expire. Gives a quiet tile a time to live: all that the store has of it goes away on the store's clock, unless an
-- owner comes back first (commit, rebase). What goes is durable elsewhere, at the position the caller names.
-- KEYS  1 owner  2 stream  3 snapshot  4 marks  5 dead letters
-- ARGV  1 position of the durable snapshot  2 time to live, ms (at least 1000)
-- Reply {'ok', ms until the tile goes}, of several calls the earliest counts; {'ok', -1}, it does not go: it has an
--       owner hash, or its history does not end at that position, with a snapshot there; {'invalid', what};
--       {'corrupt', what}.
local function expire(keys, args)
  local epoch, seq = position(args[1])
  if not epoch or seq == '0' then return invalid('position') end
  local ttl = number(args[2])
  if not ttl or ttl < 1000 then return invalid('ttl') end

  local owner, why = read_owner(keys[1])
  if owner == nil then return {'corrupt', why} end
  if owner then return {'ok', -1} end
  local last, bad = last_of(keys[2], keys[3])
  if bad then return {'corrupt', bad} end
  local s = redis.call('HMGET', keys[3], 'epoch', 'seq', 'chain')
  if last ~= args[1] or not s[2] or table.concat(s, '/') ~= last then return {'ok', -1} end
  local at = ('%.0f'):format(tonumber(now()) + ttl)
  for i = 2, 5 do
    redis.call('PEXPIREAT', keys[i], at, 'LT')
  end
  return {'ok', redis.call('PTTL', keys[3])}
end
