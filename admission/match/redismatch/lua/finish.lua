-- tickets_of calls f with each ticket of a match that still is in it, in state 3, and returns them. It calls f with
-- each that was cancelled, too: gone is then true. f gets the ticket's players and its source.
local function tickets_of(base, match, list, f)
  local ids = {}
  for id in list:gmatch('%S+') do
    local t = redis.call('HMGET', base .. ':t:' .. id, 's', 'm', 'p', 'o')
    if t[1] == '3' and t[2] == match then
      f(id, false, t[3], t[4])
      ids[#ids + 1] = id
    elseif t[1] == '5' then
      f(id, true, t[3], t[4])
    end
  end
  return ids
end

-- finish_match ends a match: s 2 or 3, and more fields. The caller takes it from :pending.
local function finish_match(base, match, s, ...)
  redis.call('HSET', base .. ':m:' .. match, 's', s, ...)
  redis.call('PEXPIRE', base .. ':m:' .. match, KEPT)
end

-- publish. ARGV of each match: id and, by a space, until when its seats are held (ms); assignment (JSON). Reply {'ok',
-- then '1' or '0' (dissolved, or unknown) of each}.
local function publish(keys, args)
  local base, t, reply, moved, done = keys[1], now(), {'ok'}, {}, {}
  if #args % 2 ~= 0 then return {'invalid', 'matches'} end
  for i = 1, #args, 2 do
    local match, till = args[i]:match('^(%S+) ?(%d*)$')
    if not match then return {'invalid', 'match'} end
    local key = base .. ':m:' .. match
    till = math.max(t + 1, math.min(tonumber(till) or 0, t + HOLD))
    local m = redis.call('HMGET', key, 's', 't')
    if m[1] == '1' then
      finish_match(base, match, 2, 'a', args[i + 1])
      done[#done + 1] = match
      for _, id in ipairs(tickets_of(base, match, m[2], function(id, gone, players, source)
        keep(base, id, players, source, till)
        if gone then return end
        redis.call('HSET', base .. ':t:' .. id, 's', 4)
        redis.call('PEXPIRE', base .. ':t:' .. id, KEPT)
      end)) do moved[#moved + 1] = id end
    elseif m[1] == '2' then
      redis.call('HSET', key, 's', 2)
    end
    reply[#reply + 1] = (m[1] == '1' or m[1] == '2') and '1' or '0'
  end
  if #done > 0 then redis.call('ZREM', base .. ':pending', unpack(done)) end
  count(base, 'c3', -#moved)
  count(base, 'c4', #moved)
  changed(base, moved)
  return reply
end

-- dissolve. ARGV match, why (JSON). Reply 'ok'.
local function dissolve(keys, args)
  local base, match = keys[1], args[1]
  local m = redis.call('HMGET', base .. ':m:' .. match, 's', 't')
  if m[1] ~= '1' then return {'ok'} end
  finish_match(base, match, 3)
  redis.call('ZREM', base .. ':pending', match)
  local ids = tickets_of(base, match, m[2], function(id, gone, players, source)
    if gone then free(base, id, players, source) else back(base, id, args[2], '3', 0) end
  end)
  changed(base, ids)
  arrived(base, #ids)
  return {'ok'}
end

-- orphans returns up to limit claimed tickets whose epoch has no lease. It goes from epoch to epoch, of which there
-- are as many as workers.
local function orphans(base, limit)
  local ids, from = {}, '-inf'
  while #ids < limit do
    local at = redis.call('ZRANGEBYSCORE', base .. ':claimed', from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not at[1] then break end
    local epoch = text(tonumber(at[2]))
    if not redis.call('ZSCORE', base .. ':leases', epoch) then
      for _, id in ipairs(redis.call('ZRANGEBYSCORE', base .. ':claimed', epoch, epoch, 'LIMIT', 0, limit - #ids)) do
        ids[#ids + 1] = id
      end
    end
    from = '(' .. epoch
  end
  return ids
end

-- reclaim. ARGV limit, '1' for IDs (not in revision 2). Reply {'ok', tickets of claims without a lease by spaces,
-- tickets that timed out by spaces, '1' if there is more, then matches to finish (JSON), each followed by its ID}. A
-- match that has no record any more is not finished.
local function reclaim(keys, args)
  local base, limit = keys[1], whole(args[1])
  if not limit or limit < 1 then return {'invalid', 'limit'} end
  local t = now()
  for _, epoch in ipairs(redis.call('ZRANGEBYSCORE', base .. ':leases', '-inf', '(' .. text(t))) do
    leave(keys, {epoch})
  end
  local returned = orphans(base, limit)
  for _, id in ipairs(returned) do
    redis.call('ZREM', base .. ':claimed', id)
    local d = redis.call('HMGET', base .. ':t:' .. id, 'r', 'by', 'at')
    if d[1] and d[2] and d[3] then
      redis.call('HSET', base .. ':t:' .. id, 'why', '{"reason":"reclaimed"}')
      wait(base, id, ':fresh', d[3], d[1], d[2])
    end
  end
  local late = expire(base, t, limit)
  local due = redis.call('ZRANGEBYSCORE', base .. ':pending', '-inf', '(' .. text(t), 'LIMIT', 0, limit)
  local more = #returned == limit or #late == limit or #due == limit
  local reply = {'ok', table.concat(returned, ' '), table.concat(late, ' '), more and '1' or '0'}
  for _, id in ipairs(due) do
    redis.call('ZADD', base .. ':pending', 'XX', text(t + AGAIN), id) -- others have their turn before it comes again
  end
  for _, id in ipairs(due) do
    local d = redis.call('HGET', base .. ':m:' .. id, 'd')
    if d then
      reply[#reply + 1] = d
      if args[2] then reply[#reply + 1] = id end
    else
      redis.call('ZREM', base .. ':pending', id)
    end
  end
  changed(base, returned)
  changed(base, late)
  arrived(base, #returned)
  return reply
end
