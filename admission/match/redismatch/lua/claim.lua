-- take moves up to room tickets from the queue to the claim of an epoch: bands of neighbours by rating around those
-- whose turn it is, in turn one that was never looked at and one that was looked at longest ago.
local function take(base, epoch, room, ids)
  local lists, turn = {base .. ':fresh', base .. ':seen'}, 0
  while room > 0 do
    local seed = redis.call('ZRANGE', lists[1 + turn % 2], 0, 0)[1] or
      redis.call('ZRANGE', lists[2 - turn % 2], 0, 0)[1]
    if not seed then return end
    turn = turn + 1
    local size = math.min(BAND, room)
    local rank = redis.call('ZRANK', base .. ':rating', seed)
    local from = math.max(0, rank - math.floor((size - 1) / 2))
    local band = redis.call('ZRANGE', base .. ':rating', from, from + size - 1)
    local add = {}
    for _, id in ipairs(band) do
      add[#add + 1], add[#add + 2], ids[#ids + 1] = epoch, id, id
    end
    for _, key in ipairs{':fresh', ':seen', ':rating', ':deadline'} do
      redis.call('ZREM', base .. key, unpack(band))
    end
    redis.call('ZADD', base .. ':claimed', unpack(add))
    room = room - #band
  end
end

-- claim. ARGV worker, epoch ('0' for a new one), lease (ms), limit, '1' for IDs (not in revision 2).
-- Reply {'ok', epoch, arrivals, '1' if another worker is busy, now, then ticket (JSON), when it came, and its ID, of
-- all that the epoch holds}, or 'stale'. A ticket that has no record any more leaves the queue.
local function claim(keys, args)
  local base, worker, epoch, lease, limit = keys[1], args[1], args[2], whole(args[3]), whole(args[4])
  if not whole(epoch) or not lease or not limit then return {'invalid', 'epoch, lease or limit'} end
  local t = now()
  local meta = redis.call('HMGET', base .. ':meta', 'epoch', 'arrivals', 'looked')
  if epoch == '0' then
    -- Above every epoch that a failover may have forgotten: no two are given in one microsecond.
    epoch = text(math.max((tonumber(meta[1]) or 0) + 1, t * 1000))
    redis.call('HSET', base .. ':meta', 'epoch', epoch)
    redis.call('HSET', base .. ':names', epoch, worker)
  elseif not redis.call('ZSCORE', base .. ':leases', epoch) then
    return {'stale'}
  end
  redis.call('ZADD', base .. ':leases', text(t + lease), epoch)
  local late = expire(base, t, limit)
  local ids = redis.call('ZRANGEBYSCORE', base .. ':claimed', epoch, epoch)
  local waiting = redis.call('ZCARD', base .. ':rating')
  local others = redis.call('ZCARD', base .. ':claimed') - #ids
  local busy = others > 0 and waiting < limit and t - (tonumber(meta[3]) or 0) < BUSY
  if not busy and waiting > 0 and #ids < limit then
    redis.call('HSET', base .. ':meta', 'looked', text(t))
    take(base, epoch, limit - #ids, ids)
  end
  changed(base, late)
  local reply = {'ok', epoch, meta[2] or '0', busy and '1' or '0', text(t)}
  for _, id in ipairs(ids) do
    local d = redis.call('HMGET', base .. ':t:' .. id, 'd', 'at')
    if d[1] and d[2] then
      reply[#reply + 1], reply[#reply + 2] = d[1], d[2]
      if args[5] then reply[#reply + 1] = id end
    else
      leave_queue(base, id)
    end
  end
  return reply
end

-- heartbeat. ARGV epoch, lease (ms). Reply 'ok' or 'stale'. It renews all claims of the epoch.
local function heartbeat(keys, args)
  local lease = whole(args[2])
  if not whole(args[1]) or not lease then return {'invalid', 'epoch or lease'} end
  if not redis.call('ZSCORE', keys[1] .. ':leases', args[1]) then return {'stale'} end
  redis.call('ZADD', keys[1] .. ':leases', text(now() + lease), args[1])
  return {'ok'}
end

-- leave. ARGV epoch. Reply 'ok'.
local function leave(keys, args)
  redis.call('ZREM', keys[1] .. ':leases', args[1])
  redis.call('HDEL', keys[1] .. ':names', args[1])
  return {'ok'}
end

-- held returns which of the tickets an epoch holds, as a set.
local function held(base, epoch, ids)
  local set = {}
  if #ids == 0 then return set end
  for i, e in ipairs(redis.call('ZMSCORE', base .. ':claimed', unpack(ids))) do
    set[ids[i]] = e and tonumber(e) == tonumber(epoch)
  end
  return set
end

-- words splits a list by spaces.
local function words(list)
  local all = {}
  for word in list:gmatch('%S+') do all[#all + 1] = word end
  return all
end

-- record. ARGV epoch, then of each match: id, match (JSON), its tickets by spaces.
-- Reply {'ok', then of each match '' or the ticket that is gone}, or 'stale'.
local function record(keys, args)
  local base, epoch = keys[1], args[1]
  if not whole(epoch) or (#args - 1) % 3 ~= 0 then return {'invalid', 'epoch or matches'} end
  local due = redis.call('ZSCORE', base .. ':leases', epoch)
  if not due then return {'stale'} end
  local all = {}
  for i = 4, #args, 3 do all[#all + 1] = args[i] end
  local t, reply, made, moved = text(now()), {'ok'}, {}, {}
  local has = held(base, epoch, words(table.concat(all, ' ')))
  for i = 2, #args, 3 do
    local id, ids, gone, key = args[i], words(args[i + 2]), nil, base .. ':m:' .. args[i]
    if redis.call('EXISTS', key) == 1 then
      redis.call('HSET', key, 'd', args[i + 1])
    else
      for k = #ids, 1, -1 do gone = not has[ids[k]] and ids[k] or gone end
      if not gone then
        redis.call('HSET', key, 'd', args[i + 1], 't', args[i + 2], 's', 1)
        for _, ticket in ipairs(ids) do
          redis.call('HSET', base .. ':t:' .. ticket, 's', 3, 'm', id, 'ended', t)
          moved[#moved + 1], has[ticket] = ticket, false
        end
        made[#made + 1], made[#made + 2] = due, id
      end
    end
    reply[#reply + 1] = gone or ''
  end
  if #made > 0 then
    redis.call('ZADD', base .. ':pending', unpack(made))
    redis.call('ZREM', base .. ':claimed', unpack(moved))
  end
  count(base, 'made', #made / 2)
  count(base, 'c3', #moved)
  changed(base, moved)
  return reply
end

-- release. ARGV epoch, then of each ticket: id, why (JSON). Reply {'ok', arrivals}, or 'stale'.
local function release(keys, args)
  local base, epoch = keys[1], args[1]
  if not whole(epoch) or #args % 2 ~= 1 then return {'invalid', 'epoch or tickets'} end
  if not redis.call('ZSCORE', base .. ':leases', epoch) then return {'stale'} end
  local t = text(now())
  for i = 2, #args, 2 do
    local id = args[i]
    local e = redis.call('ZSCORE', base .. ':claimed', id)
    if e and tonumber(e) == tonumber(epoch) then
      redis.call('ZREM', base .. ':claimed', id)
      local d = redis.call('HMGET', base .. ':t:' .. id, 'r', 'by')
      wait(base, id, ':seen', t, d[1], d[2])
      redis.call('HSET', base .. ':t:' .. id, 'why', args[i + 1])
    end
  end
  return {'ok', redis.call('HGET', base .. ':meta', 'arrivals') or '0'}
end
