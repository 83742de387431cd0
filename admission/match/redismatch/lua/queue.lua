-- Matchmaking on Redis 7, one shard of a queue in one slot. KEYS[1] is the shard's base, {match:<queue>/<n>}; every
-- other key is the base and a suffix, so that it is in the same slot:
--   :meta      hash: epoch (last given), arrivals, looked (last claim, ms), created, made, c3..c6 (tickets by state)
--   :fresh     sorted set of tickets that wait and were never looked at, or are back from a match, by when they came
--              (ms)
--   :seen      sorted set of the others that wait, by when they were looked at (ms)
--   :rating    sorted set of all that wait, by rating
--   :deadline  sorted set of all that wait, by when they time out (ms)
--   :claimed   sorted set of claimed tickets, by the epoch of the worker that has them
--   :leases    sorted set of epochs, by when their lease ends (ms)
--   :names     hash: epoch -> worker
--   :pending   sorted set of matches that are recorded and not finished, by when a supervisor finishes them (ms)
--   :p:<player> string: the player's open ticket; it expires when seats that were held for it are not any more
--   :h:<player> string: the player's ticket in the whole queue, and since when (ms), by a space
--   :o:<source> sorted set of a source's open tickets, by when they stop counting (ms); +inf: when they end
--   :t:<id>    hash of a ticket: d (JSON), r (rating), at and by (enqueued, deadline: ms), s (state), m (match), why,
--              ended (ms), p (its players, by spaces), o (source), l (seats that it did not take)
--   :m:<id>    hash of a match: d (JSON), t (its tickets, by spaces), s (1 recorded, 2 published, 3 dissolved), a
--              (assignment, JSON)
-- Channels :arrivals (empty messages) and :changes (tickets, by spaces). Numbers are integers below 2^53.
-- States: 1 waiting (or claimed: it is in :claimed then), 3 matched, 4 seated, 5 cancelled, 6 timed out.
-- Every reply begins with a code: 'ok', 'stale', 'unknown', 'reused', 'open', 'crowded', 'invalid'. Arguments are
-- checked before the first write. Every call may be repeated; a repeated one that changes nothing still writes, so
-- that WAIT after it waits for what the first one wrote.

local KEPT = 3600000 -- ms that tickets and matches can be read after they ended
local BUSY = 50      -- ms that a worker has to compare the few tickets that wait, before another joins in
local BAND = 64      -- tickets that a claim takes around one of those whose turn it is
local HOLD = 1800000 -- ms; match.MaxHold
local LAPSES = 3     -- match.MaxLapses
local AGAIN = 1000   -- ms; match.PendingAgain

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function text(n) return ('%.0f'):format(n) end

local function whole(s)
  local n = tonumber(s)
  if n and n % 1 == 0 and math.abs(n) < 9007199254740992 then return n end
end

-- count adds to counters of the shard.
local function count(base, field, n)
  if n ~= 0 then redis.call('HINCRBY', base .. ':meta', field, text(n)) end
end

local function changed(base, ids)
  if #ids > 0 then redis.call('SPUBLISH', base .. ':changes', table.concat(ids, ' ')) end
end

local function arrived(base, n)
  if n > 0 then
    count(base, 'arrivals', n)
    redis.call('SPUBLISH', base .. ':arrivals', '')
  end
end

-- wait puts a ticket into the queue. turn is :fresh or :seen with its score.
local function wait(base, id, list, turn, rating, deadline)
  redis.call('ZADD', base .. list, turn, id)
  redis.call('ZADD', base .. ':rating', rating, id)
  redis.call('ZADD', base .. ':deadline', deadline, id)
end

-- open_of returns the open ticket of a player, if that is another one than id.
local function open_of(base, player, id)
  local had = redis.call('GET', base .. ':p:' .. player)
  if had and had ~= id and redis.call('EXISTS', base .. ':t:' .. had) == 1 then return had end
end

-- keep makes a ticket the open one of its players and of its source: until it ends (nil), or until an instant (ms). A
-- player who has another one by now keeps that.
local function keep(base, id, players, source, till)
  for player in (players or ''):gmatch('%S+') do
    if open_of(base, player, id) then
      -- it stays
    elseif till then
      redis.call('SET', base .. ':p:' .. player, id, 'PXAT', text(till))
    else
      redis.call('SET', base .. ':p:' .. player, id)
    end
  end
  if source and source ~= '' then
    redis.call('ZADD', base .. ':o:' .. source, till and text(till) or '+inf', id)
  end
end

-- free ends what keep began.
local function free(base, id, players, source)
  for player in (players or ''):gmatch('%S+') do
    if redis.call('GET', base .. ':p:' .. player) == id then
      redis.call('PEXPIRE', base .. ':p:' .. player, 0) -- its user may not delete
    end
  end
  if source and source ~= '' then redis.call('ZREM', base .. ':o:' .. source, id) end
end

-- finish_ticket ends a ticket: s 5 or 6.
local function finish_ticket(base, id, s, t)
  local key = base .. ':t:' .. id
  local d = redis.call('HMGET', key, 'p', 'o')
  free(base, id, d[1], d[2])
  redis.call('HSET', key, 's', s)
  redis.call('HSETNX', key, 'ended', text(t))
  redis.call('HDEL', key, 'm')
  redis.call('PEXPIRE', key, KEPT)
  count(base, 'c' .. s, 1)
end

-- back gives a ticket that had a match its place in the queue again. It ends instead if a player of it has another one.
local function back(base, id, why, from, later)
  local key = base .. ':t:' .. id
  local d = redis.call('HMGET', key, 'r', 'at', 'by', 'p', 'o')
  count(base, 'c' .. from, -1)
  for player in (d[4] or ''):gmatch('%S+') do
    if open_of(base, player, id) then
      redis.call('HSET', key, 'why', '{"reason":"superseded"}')
      finish_ticket(base, id, 5, now())
      return
    end
  end
  local by = text(d[3] + later)
  redis.call('HSET', key, 's', 1, 'why', why, 'by', by)
  redis.call('HDEL', key, 'm', 'ended')
  redis.call('PERSIST', key)
  keep(base, id, d[4], d[5])
  wait(base, id, ':fresh', d[2], d[1], by)
end

-- status replies {'ok', now, then d, s, at, by, why, m, ended and the assignment, of each ticket}; '' for none.
local function status(base, ids)
  local reply = {'ok', text(now())}
  for _, id in ipairs(ids) do
    local t = redis.call('HMGET', base .. ':t:' .. id, 'd', 's', 'at', 'by', 'why', 'm', 'ended')
    if t[1] then
      if t[2] == '1' and redis.call('ZSCORE', base .. ':claimed', id) then t[2] = '2' end
      t[8] = t[2] == '4' and redis.call('HGET', base .. ':m:' .. t[6], 'a')
      for i = 1, 8 do reply[#reply + 1] = t[i] or '' end
    end
  end
  return reply
end

-- refused says why there is no room for one more ticket: {'open', player, its ticket, by when that stops counting by
-- itself (ms) or ''}, or {'crowded', '' or the source, open tickets, how many there may be}. args as for enqueue.
local function refused(base, id, args, t)
  for i = 8, #args do
    local other = open_of(base, args[i], id)
    if other then
      local left = redis.call('PTTL', base .. ':p:' .. args[i])
      return {'open', args[i], other, left > 0 and text(t + left) or ''}
    end
  end
  local room, most, source = tonumber(args[5]), tonumber(args[6]), args[7]
  local matched = tonumber(redis.call('HGET', base .. ':meta', 'c3') or 0)
  local open = redis.call('ZCARD', base .. ':rating') + redis.call('ZCARD', base .. ':claimed') + matched
  if open >= room then return {'crowded', '', text(open), text(room)} end
  if source == '' then return nil end
  redis.call('ZREMRANGEBYSCORE', base .. ':o:' .. source, '-inf', text(t))
  local own, share = redis.call('ZCARD', base .. ':o:' .. source), math.min(most, math.floor((room - open + 7) / 8))
  if own >= share then return {'crowded', source, text(own), text(share)} end
end

-- enqueue. ARGV id, ticket (JSON), rating, longest wait (ms), room of the shard, most tickets of a source, source or
-- '', players. A client of revision 2 sends the first four. Reply status, 'reused', or what refused says.
local function enqueue(keys, args)
  local base, id, data, rating, wait_ms = keys[1], args[1], args[2], whole(args[3]), whole(args[4])
  if not rating or not wait_ms or wait_ms < 1 then return {'invalid', 'rating or wait'} end
  if #args > 4 and not (whole(args[5]) and whole(args[6]) and args[7]) then return {'invalid', 'room or source'} end
  local key = base .. ':t:' .. id
  local had = redis.call('HGET', key, 'd')
  if had and had ~= data then return {'reused'} end
  if had then
    redis.call('HSET', key, 'd', data)
    return status(base, {id})
  end
  local t = now()
  local no = #args > 4 and refused(base, id, args, t)
  if no then return no end
  local players, source = table.concat(args, ' ', 8), args[7] or ''
  redis.call('HSET', key, 'd', data, 'r', args[3], 'at', text(t), 'by', text(t + wait_ms), 's', 1, 'p', players,
    'o', source)
  keep(base, id, players, source)
  wait(base, id, ':fresh', text(t), args[3], text(t + wait_ms))
  count(base, 'created', 1)
  arrived(base, 1)
  return status(base, {id})
end

-- hold. ARGV player, ticket, how long (ms; 0 removes it), ticket that it replaces or ''. Reply {'ok', the ticket
-- that is noted as the player's now, for how long it has been so (ms)}.
local function note(keys, args)
  local key, id, ms, t = keys[1] .. ':h:' .. args[1], args[2], whole(args[3]), now()
  if not ms or ms < 0 or not id:match('^%S+$') then return {'invalid', 'ticket or duration'} end
  local had, since = (redis.call('GET', key) or ''):match('^(%S+) (%d+)$')
  if not had or had == args[4] then had, since = id, text(t) end
  if had == id and ms > 0 then
    redis.call('SET', key, id .. ' ' .. since, 'PX', text(ms))
  elseif had == id then
    redis.call('PEXPIRE', key, 0) -- its user may not delete
  end
  return {'ok', had, text(math.max(0, t - since))}
end

-- open. ARGV player. Reply {'ok', the player's open ticket or '', until when it is open at the latest (ms) or ''}.
local function open_in(keys, args)
  local ticket = open_of(keys[1], args[1], '')
  if not ticket then return {'ok', '', ''} end
  local left = redis.call('PTTL', keys[1] .. ':p:' .. args[1])
  return {'ok', ticket, left > 0 and text(now() + left) or ''}
end

-- read. ARGV tickets. Reply status of those that exist.
local function read(keys, args)
  return status(keys[1], args)
end

-- list. ARGV limit. Reply status of tickets that wait, and of those that are claimed: up to limit of each.
local function list(keys, args)
  local base, last = keys[1], text(tonumber(args[1]) - 1)
  if last == '-1' then return status(base, {}) end
  local ids = redis.call('ZRANGE', base .. ':deadline', 0, last)
  for _, id in ipairs(redis.call('ZRANGE', base .. ':claimed', 0, last)) do ids[#ids + 1] = id end
  return status(base, ids)
end

-- depth. Reply {'ok', created, waiting, claimed, matched, seated, cancelled, timed out, made, pending, workers}.
local function depth(keys)
  local base = keys[1]
  local m = redis.call('HMGET', base .. ':meta', 'created', 'c3', 'c4', 'c5', 'c6', 'made')
  local function card(key) return text(redis.call('ZCARD', base .. key)) end
  return {'ok', m[1] or '0', card(':rating'), card(':claimed'), m[2] or '0', m[3] or '0', m[4] or '0', m[5] or '0',
    m[6] or '0', card(':pending'), card(':leases')}
end

-- leave_queue removes a ticket that waits or is claimed.
local function leave_queue(base, id)
  for _, key in ipairs{':fresh', ':seen', ':rating', ':deadline', ':claimed'} do
    redis.call('ZREM', base .. key, id)
  end
end

-- expire ends up to limit tickets that wait past their deadline, and returns them.
local function expire(base, t, limit)
  local late = redis.call('ZRANGEBYSCORE', base .. ':deadline', '-inf', '(' .. text(t), 'LIMIT', 0, limit)
  for _, id in ipairs(late) do
    leave_queue(base, id)
    finish_ticket(base, id, 6, t)
  end
  return late
end

-- cancel. ARGV ticket. Reply status, or 'unknown'. A ticket that has a match counts on while its seats may be held.
local function cancel(keys, args)
  local base, id = keys[1], args[1]
  local key = base .. ':t:' .. id
  local d = redis.call('HMGET', key, 's', 'p', 'o')
  local s = d[1]
  if not s then return {'unknown'} end
  if s ~= '5' and s ~= '6' then
    leave_queue(base, id)
    redis.call('HSETNX', key, 'ended', text(now()))
    redis.call('HDEL', key, 'm')
    if s == '1' then
      free(base, id, d[2], d[3])
    else
      if s == '3' then keep(base, id, d[2], d[3], now() + HOLD) end
      count(base, 'c' .. s, -1)
    end
    count(base, 'c5', 1)
    changed(base, {id})
  end
  if s ~= '6' then
    redis.call('HSET', key, 's', 5)
    redis.call('PEXPIRE', key, KEPT)
  end
  return status(base, {id})
end

-- requeue. ARGV match, ticket. Reply {'ok', '1'}, or {'ok', '0'} while the match is not finished.
local function requeue(keys, args)
  local base, match, id = keys[1], args[1], args[2]
  if redis.call('HGET', base .. ':m:' .. match, 's') == '1' then return {'ok', '0'} end
  local key = base .. ':t:' .. id
  local t = redis.call('HMGET', key, 's', 'm', 'ended')
  if t[1] == '4' and t[2] == match then
    local why = '{"reason":"seat lapsed"}'
    if redis.call('HINCRBY', key, 'l', 1) < LAPSES then
      back(base, id, why, '4', now() - t[3]) -- the time it had a seat is not waiting
    else
      redis.call('HSET', key, 'why', why, 'ended', text(now()))
      count(base, 'c4', -1)
      finish_ticket(base, id, 6, now())
    end
    changed(base, {id})
    arrived(base, 1)
  end
  return {'ok', '1'}
end
