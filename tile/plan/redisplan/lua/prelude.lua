-- Shared by all functions of the library. Numbers travel as decimal strings below 2^53.
--
-- A shard is one slot. Every call names its first key, {tilefence:plan:S}:requests, where S is a number, after the
-- name of a game and a colon if it has one. The functions name the others after it:
--
--   requests    hash    ID to record, of everything that is not answered, dead letters included
--   player      list    '=T' of each tile T that has requests waiting, by tier: the next one in turn first. Libraries
--   background  list    of revision 4 had the IDs of all requests here, in one queue; those are taken in their turn
--   queue:N:T   list    IDs of a tile's waiting requests of tier N. An ID whose record is gone, is not waiting or has
--                       another tier is skipped: a request that was promoted stays in the list that it was in
--   due         zset    IDs of running and resting requests, by when they return to the queue, ms
--   dead        zset    IDs of dead letters, by when they died, ms
--   usage       stream  usage events
--   epochs      hash    tile to the highest epoch of an owner that had a turn
--   tile:T      hash    entity to ID: in flight
--   answers:T   hash    entity to answer
--   wake        channel a tier, '1' or '2', when a request of it may be waiting

local MAX = 9007199254740991

-- Answers are dropped by their own time. What no owner has collected goes so much later, ms.
local UNCOLLECTED = 60000
local ANSWER_TTL = 30000
local MAX_OUTSTANDING, MAX_LETTERS = 2048, 1000

-- Requests that one claim returns to their queue, and answers that one turn reads.
local SWEEP, ANSWERS = 64, 128

-- Requests of one turn.
local MAX_ASKS = 256

-- Fields of a record.
local TILE, ENTITY, REQUESTER, TIER, WORDS, QUEUED, ATTEMPT, STATE, EPOCH, WORKER, ERROR, DIED =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local WAITING, RESTING, RUNNING, DEAD = 'w', 'p', 'r', 'd'

-- Fields of an answer, and its kinds.
local A_ID, A_KIND, A_EPOCH, A_EXPIRES, A_BODY, A_MODEL, A_INPUT, A_OUTPUT, A_CACHED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local PLANNED, DISCARDED, DIED_KIND, EXPIRED, STALE = 1, 2, 3, 4, 5

local QUEUES = {['1'] = ':player', ['2'] = ':background'}

-- number returns s as a number if it is a plain decimal from 0 to MAX, else nil.
local function number(s)
  local n = tonumber(s)
  if n and n <= MAX and (s:find('^[1-9]%d*$') or s == '0') then return n end
end

local function invalid(what)
  return {'invalid', what}
end

-- shard_of is what the names of a shard's keys begin with; nil if the key is none of a shard.
local function shard_of(keys)
  return keys[1] and keys[1]:match('^([%l%d-]*:?{tilefence:plan:[%w_:-]*%d}):requests$')
end

-- now is the server's clock in milliseconds.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- decoded is a record or an answer, of so many fields at least, that a hash has under a name. Bytes that are not what
-- was written must not keep a shard from working: they are removed, the server's log says so, and what they were counts
-- as lost, which desks notice. In a function that only reads they stay.
local function decoded(key, name, packed, fields)
  if not packed then return nil end
  local ok, r = pcall(cmsgpack.unpack, packed)
  if ok and type(r) == 'table' and #r >= fields then return r end
  redis.log(redis.LOG_WARNING, 'tilefence: what ' .. key .. ' has under ' .. name .. ' cannot be read, and is dropped')
  redis.pcall('HDEL', key, name)
end

local function record(shard, id, packed) return decoded(shard .. ':requests', id, packed, DIED) end

local function answer_in(key, entity, packed) return decoded(key, entity, packed, A_BODY) end

local function read(shard, id)
  return record(shard, id, redis.call('HGET', shard .. ':requests', id))
end

local function write(shard, id, r)
  redis.call('HSET', shard .. ':requests', id, cmsgpack.pack(r))
end

-- view appends what a reply says of a request.
local function view(out, id, r, at)
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4], out[n + 5] = id, r[TILE], r[ENTITY], r[REQUESTER], r[TIER]
  out[n + 6], out[n + 7], out[n + 8], out[n + 9] = r[WORDS], r[EPOCH], r[ATTEMPT], math.max(0, at - r[QUEUED])
  out[n + 10] = r[STATE] == RUNNING and 1 or 0
end

local function wake(shard, tier)
  redis.call('SPUBLISH', shard .. ':wake', tier)
end

local function queue_of(shard, tier, tile) return shard .. ':queue:' .. tier .. ':' .. tile end

-- push adds requests to the queue of their tile, at its end (RPUSH) or its head (LPUSH). A tile that had none has its
-- turn after all others.
local function push(shard, tier, tile, ids, where)
  if redis.call(where, queue_of(shard, tier, tile), unpack(ids)) == #ids then
    redis.call('RPUSH', shard .. QUEUES[tier], '=' .. tile)
  end
end

-- pop takes from the next tile in turn its part of n requests, one at least, and returns them; nil if none waits.
local function pop(shard, tier, n)
  local ring = shard .. QUEUES[tier]
  local tiles = redis.call('LLEN', ring)
  while true do
    local head = redis.call('LPOP', ring)
    if not head then return nil end
    if head:sub(1, 1) ~= '=' then return {head} end
    local queue = queue_of(shard, tier, head:sub(2))
    local ids = redis.call('LPOP', queue, math.max(1, math.floor(n / tiles)))
    if ids then
      if redis.call('LLEN', queue) > 0 then redis.call('RPUSH', ring, head) end
      return ids
    end
  end
end

-- answer ends a request's flight.
local function answer(shard, id, r, kind, expires, keep, body)
  redis.call('HDEL', shard .. ':tile:' .. r[TILE], r[ENTITY])
  local key = shard .. ':answers:' .. r[TILE]
  redis.call('HSET', key, r[ENTITY], cmsgpack.pack({id, kind, r[EPOCH], expires, body}))
  redis.call('PEXPIRE', key, keep + UNCOLLECTED)
end

-- bill stores a usage event.
local function bill(shard, id, tile, entity, requester, model, input, output, cached, at)
  redis.call('XADD', shard .. ':usage', '*', 'r', id, 't', tile, 'e', entity, 'p', requester, 'm', model,
    'i', input, 'o', output, 'c', cached, 'at', string.format('%.0f', at))
end

-- kill makes a dead letter of a request.
local function kill(shard, id, r, why, at)
  r[STATE], r[ERROR], r[DIED] = DEAD, why, at
  write(shard, id, r)
  redis.call('ZREM', shard .. ':due', id)
  redis.call('ZADD', shard .. ':dead', at, id)
  if redis.call('ZCARD', shard .. ':dead') > MAX_LETTERS then
    redis.call('HDEL', shard .. ':requests', redis.call('ZPOPMIN', shard .. ':dead')[1])
  end
  answer(shard, id, r, DIED_KIND, at + ANSWER_TTL, ANSWER_TTL, '')
end
