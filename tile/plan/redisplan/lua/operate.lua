-- usage. Removes the events that billing has, and reads the next ones.
-- KEYS  1 usage
-- ARGV  1 the last event to remove, or ''  2 how many to read
-- Reply {'ok', entries as XRANGE has them}; {'invalid', what}.
local function usage(keys, args)
  if not keys[1] or not keys[1]:find('^[%l%d-]*:?{tilefence:plan:[%w_:-]*%d}:usage$') then return invalid('keys') end
  local limit = number(args[2] or '')
  if not limit or limit == 0 or limit > 10000 then return invalid('limit') end
  if args[1] ~= '' then
    local ms, seq = args[1]:match('^(%d+)%-(%d+)$')
    if not number(ms or '') or not number(seq) then return invalid('position') end
    redis.call('XTRIM', keys[1], 'MINID', ms .. '-' .. string.format('%.0f', seq + 1))
  end
  return {'ok', redis.call('XRANGE', keys[1], '-', '+', 'COUNT', limit)}
end

-- depth. Counts what a shard holds.
-- KEYS  1 requests
-- Reply {'ok', players, background, running or resting, dead, usage events, age of the oldest at the head of a tile's
--       queue, ms}.
local function depth(keys)
  local shard = shard_of(keys)
  if not shard then return invalid('keys') end
  local at, oldest = now(), 0
  local waiting = {['1'] = 0, ['2'] = 0}
  for tier, ring in pairs(QUEUES) do
    for _, id in ipairs(redis.call('LRANGE', shard .. ring, 0, -1)) do
      local n = 1
      if id:sub(1, 1) == '=' then
        local queue = queue_of(shard, tier, id:sub(2))
        n, id = redis.call('LLEN', queue), redis.call('LINDEX', queue, 0)
      end
      waiting[tier] = waiting[tier] + n
      local r = id and read(shard, id)
      if r and r[STATE] == WAITING then oldest = math.max(oldest, at - r[QUEUED]) end
    end
  end
  return {'ok', waiting['1'], waiting['2'],
    redis.call('ZCARD', shard .. ':due'), redis.call('ZCARD', shard .. ':dead'),
    redis.call('XLEN', shard .. ':usage'), oldest}
end

-- letters. Reads the dead letters, oldest first.
-- KEYS  1 requests
-- Reply {'ok', {requests, see view}, {error and time of death, ms, for each}}.
local function letters(keys)
  local shard = shard_of(keys)
  if not shard then return invalid('keys') end
  local at, out, deaths = now(), {}, {}
  for _, id in ipairs(redis.call('ZRANGE', shard .. ':dead', 0, MAX_LETTERS)) do
    local r = read(shard, id)
    if r then
      view(out, id, r, at)
      deaths[#deaths + 1], deaths[#deaths + 2] = r[ERROR], r[DIED]
    end
  end
  return {'ok', out, deaths}
end

-- letter. Queues a dead letter anew, or deletes it.
-- KEYS  1 requests
-- ARGV  1 ID  2 'replay' or 'drop'
-- Reply {'ok'}; {'none'} there is no such letter; {'flight'} the entity has another request; {'invalid', what}.
local function letter(keys, args)
  local shard = shard_of(keys)
  if not shard then return invalid('keys') end
  local id = args[1] or ''
  local r = read(shard, id)
  if not r or r[STATE] ~= DEAD then return {'none'} end
  if args[2] == 'drop' then
    redis.call('ZREM', shard .. ':dead', id)
    redis.call('HDEL', keys[1], id)
    return {'ok'}
  end
  if args[2] ~= 'replay' then return invalid('what') end
  local flight, answers = shard .. ':tile:' .. r[TILE], shard .. ':answers:' .. r[TILE]
  if redis.call('HEXISTS', flight, r[ENTITY]) == 1 then return {'flight'} end
  local answered = answer_in(answers, r[ENTITY], redis.call('HGET', answers, r[ENTITY]))
  if answered and answered[A_ID] ~= id then return {'flight'} end
  redis.call('HDEL', answers, r[ENTITY])
  redis.call('ZREM', shard .. ':dead', id)
  redis.call('HSET', flight, r[ENTITY], id)
  r[STATE], r[ATTEMPT], r[QUEUED], r[ERROR] = WAITING, 0, now(), ''
  r[EPOCH] = redis.call('HGET', shard .. ':epochs', r[TILE]) or r[EPOCH]
  write(shard, id, r)
  push(shard, r[TIER], r[TILE], {id}, 'RPUSH')
  wake(shard, r[TIER])
  return {'ok'}
end

-- revision tells a client which library this is before it replaces anything.
-- Reply {revision number, digest of the source}.
local function revision()
  return {REVISION, DIGEST}
end

redis.register_function('tilefence_plan_turn_v2', turn) -- receipts with usage
redis.register_function('tilefence_plan_claim_v1', claim)
redis.register_function('tilefence_plan_renew_v1', renew)
redis.register_function('tilefence_plan_finish_v1', finish)
redis.register_function('tilefence_plan_letter_v1', letter)
-- Billing that takes events is the way out of memory that is full of them.
redis.register_function{function_name = 'tilefence_plan_usage_v1', callback = usage, flags = {'allow-oom'}}
redis.register_function{function_name = 'tilefence_plan_depth_v1', callback = depth, flags = {'no-writes'}}
redis.register_function{function_name = 'tilefence_plan_letters_v1', callback = letters, flags = {'no-writes'}}
redis.register_function{function_name = 'tilefence_plan_revision_v1', callback = revision, flags = {'no-writes'}}
