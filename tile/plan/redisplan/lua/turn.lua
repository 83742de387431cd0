-- turn. What an owner does between two ticks: it removes answers, lists what is outstanding, asks, and reads answers.
-- KEYS  1 requests  2 tile:T  3 answers:T
-- ARGV  1 tile  2 epoch  3 '1' to list and adopt, else '0'  4 number of receipts; an entity and an ID for each; then
--       for each request its ID, entity, requester, tier and words
-- Reply {'ok', outstanding, {for each request 1 or 0 if it was taken, ID in flight or ''}, {for each answer entity, ID,
--       kind, body}, {requests in flight, see view}}; {'stale', highest epoch}; {'invalid', what}.

-- ask queues a request, unless the entity has one. A player's request takes the place of one that waits for nobody.
local function ask(shard, keys, tile, epoch, id, entity, requester, tier, words, at)
  local packed = redis.call('HGET', keys[3], entity)
  if packed then
    local has = cmsgpack.unpack(packed)[A_ID]
    return has == id and 1 or 0, has
  end
  local has = redis.call('HGET', keys[2], entity)
  local r = has and read(shard, has)
  if r then
    if has == id then return 1, has end
    if tier ~= '1' or r[TIER] == '1' or r[STATE] == RUNNING then return 0, has end
    redis.call('HDEL', keys[1], has)
    redis.call('ZREM', shard .. ':due', has)
  elseif redis.call('HLEN', keys[2]) + redis.call('HLEN', keys[3]) >= MAX_OUTSTANDING then
    return 0, ''
  end
  redis.call('HSET', keys[2], entity, id)
  write(shard, id, {tile, entity, requester, tier, words, at, 0, WAITING, epoch, '', '', 0})
  redis.call('RPUSH', shard .. QUEUES[tier], id)
  return 1, id
end

-- listed adopts the tile's requests that do not run, and describes all. An entity whose record is lost is free again.
local function listed(shard, keys, epoch, at)
  local out = {}
  local flight = redis.call('HGETALL', keys[2])
  for i = 1, #flight, 2 do
    local r = read(shard, flight[i + 1])
    if r then
      if r[STATE] ~= RUNNING and r[EPOCH] ~= epoch then
        r[EPOCH] = epoch
        write(shard, flight[i + 1], r)
      end
      view(out, flight[i + 1], r, at)
    else
      redis.call('HDEL', keys[2], flight[i])
    end
  end
  return out
end

local function answers_of(keys, epoch, all, at)
  local out = {}
  local found = all and redis.call('HGETALL', keys[3]) or
    redis.call('HRANDFIELD', keys[3], ANSWERS, 'WITHVALUES')
  for i = 1, #found, 2 do
    local a = cmsgpack.unpack(found[i + 1])
    local kind = a[A_KIND]
    if tonumber(a[A_EPOCH]) < epoch then
      kind = STALE
    elseif a[A_EXPIRES] <= at then
      kind = EXPIRED
    end
    local n = #out
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = found[i], a[A_ID], kind, kind == PLANNED and a[A_BODY] or ''
  end
  return out
end

local function turn(keys, args)
  local shard = shard_of(keys)
  local epoch, receipts = number(args[2] or ''), number(args[4] or '')
  if not shard or #keys ~= 3 then return invalid('keys') end
  if not epoch or epoch == 0 then return invalid('epoch') end
  if not receipts or #args < 4 + 2 * receipts then return invalid('receipts') end
  local first = 5 + 2 * receipts
  if (#args + 1 - first) % 5 ~= 0 then return invalid('requests') end
  for i = first, #args, 5 do
    if not QUEUES[args[i + 3]] then return invalid('tier') end
  end
  local known = tonumber(redis.call('HGET', shard .. ':epochs', args[1]) or '0')
  if known > epoch then return {'stale', string.format('%.0f', known)} end
  if known < epoch then redis.call('HSET', shard .. ':epochs', args[1], args[2]) end

  for i = 5, first - 1, 2 do
    local packed = redis.call('HGET', keys[3], args[i])
    if packed and cmsgpack.unpack(packed)[A_ID] == args[i + 1] then
      redis.call('HDEL', keys[3], args[i]) -- a newer answer stays
    end
  end
  local at = now()
  local asked, heard = {}, {}
  local list = args[3] == '1' and listed(shard, keys, args[2], at)
  for i = first, #args, 5 do
    local taken, id = ask(shard, keys, args[1], args[2], args[i], args[i + 1], args[i + 2], args[i + 3], args[i + 4],
      at)
    asked[#asked + 1], asked[#asked + 2] = taken, id
    if taken == 1 then heard[args[i + 3]] = true end
  end
  if list and #asked > 0 then list = listed(shard, keys, args[2], at) end
  if heard['1'] then wake(shard, '1') end
  if heard['2'] then wake(shard, '2') end
  local outstanding = redis.call('HLEN', keys[2]) + redis.call('HLEN', keys[3])
  return {'ok', outstanding, asked, answers_of(keys, epoch, list, at), list or {}}
end
