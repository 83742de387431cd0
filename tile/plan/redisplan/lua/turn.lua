-- turn. What an owner does between two ticks: it removes answers, lists what is outstanding, asks, and reads answers.
-- KEYS  1 requests  2 tile:T  3 answers:T
-- ARGV  1 tile  2 epoch  3 '1' to list and adopt, else '0'  4 number of receipts; for each entity, ID, requester, model
--       or '' if nothing is to be billed, input, output and cached tokens; then for each request its ID, entity,
--       requester, tier and words
-- Reply {'ok', outstanding, {for each request 1 or 0 if it was taken, ID in flight or ''}, {for each answer entity, ID,
--       kind, body, model, input, output and cached tokens}, {requests in flight, see view}}; {'stale', highest epoch};
--       {'invalid', what}.
local RECEIPT = 7

-- regain stores again the usage event of a plan that the owner has and this store does not, and ends its request.
local function regain(shard, keys, args, i, at)
  local entity, id = args[i], args[i + 1]
  bill(shard, id, args[1], entity, args[i + 2], args[i + 3], args[i + 4], args[i + 5], args[i + 6], at)
  if redis.call('HGET', keys[2], entity) == id then
    redis.call('HDEL', keys[2], entity)
    redis.call('HDEL', keys[1], id)
    redis.call('ZREM', shard .. ':due', id)
  end
end

-- forget removes answers, if they are those that the owner has seen; newer ones stay.
local function forget(shard, keys, args, first, at)
  local entities, gone = {}, {}
  for i = 5, first - 1, RECEIPT do entities[#entities + 1] = args[i] end
  if #entities == 0 then return end
  local packed = redis.call('HMGET', keys[3], unpack(entities))
  for n, entity in ipairs(entities) do
    local i, a = 5 + RECEIPT * (n - 1), answer_in(keys[3], entity, packed[n])
    local is = a and a[A_ID] == args[i + 1]
    if is then gone[#gone + 1] = entity end
    if args[i + 3] ~= '' and not (is and a[A_MODEL]) then regain(shard, keys, args, i, at) end
  end
  if #gone > 0 then redis.call('HDEL', keys[3], unpack(gone)) end
end

-- guard says what an entity has in the store: the ID of its answer, or of its request and that request's record.
local function guard(keys, shard, entities)
  local answered = redis.call('HMGET', keys[3], unpack(entities))
  local flying = redis.call('HMGET', keys[2], unpack(entities))
  local has = {}
  for i, entity in ipairs(entities) do
    local a = answer_in(keys[3], entity, answered[i])
    if a then
      has[entity] = {a[A_ID]}
    elseif flying[i] then
      local r = read(shard, flying[i])
      has[entity] = r and {flying[i], r}
    end
  end
  return has
end

-- ask queues requests of entities that have none. A player's takes the place of one that waits for nobody.
local function ask(shard, keys, tile, epoch, asks, at)
  local entities, room = {}, MAX_OUTSTANDING - redis.call('HLEN', keys[2]) - redis.call('HLEN', keys[3])
  for i = 2, #asks, 5 do entities[#entities + 1] = asks[i] end
  local has = guard(keys, shard, entities)
  local replies, flight, records, queued = {}, {}, {}, {['1'] = {}, ['2'] = {}}
  for i = 1, #asks, 5 do
    local id, entity, tier = asks[i], asks[i + 1], asks[i + 3]
    local taken, old = 0, has[entity]
    local replaces = old and old[2] and tier == '1' and old[2][TIER] ~= '1' and old[2][STATE] ~= RUNNING
    if old and old[1] == id then
      taken = 1
    elseif replaces or (not old and room > 0) then
      if replaces then
        redis.call('HDEL', keys[1], old[1])
        redis.call('ZREM', shard .. ':due', old[1])
        records[old[1]] = nil
      else
        room = room - 1
      end
      local r = {tile, entity, asks[i + 2], tier, asks[i + 4], at, 0, WAITING, epoch, '', '', 0}
      taken, old = 1, {id, r}
      has[entity], records[id] = old, r
      flight[entity] = id
      table.insert(queued[tier], id)
    end
    local n = #replies
    replies[n + 1], replies[n + 2] = taken, old and old[1] or ''
  end
  local all, list = {}, {}
  for entity, id in pairs(flight) do all[#all + 1], all[#all + 2] = entity, id end
  for id, r in pairs(records) do list[#list + 1], list[#list + 2] = id, cmsgpack.pack(r) end
  if #all > 0 then
    redis.call('HSET', keys[2], unpack(all))
    redis.call('HSET', keys[1], unpack(list))
  end
  for tier, ids in pairs(queued) do
    if #ids > 0 then
      push(shard, tier, tile, ids, 'RPUSH')
      wake(shard, tier)
    end
  end
  return replies
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
    local a = answer_in(keys[3], found[i], found[i + 1])
    if a then
      local kind, n = a[A_KIND], #out
      if tonumber(a[A_EPOCH]) < epoch then
        kind = STALE
      elseif a[A_EXPIRES] <= at then
        kind = EXPIRED
      end
      out[n + 1], out[n + 2], out[n + 3], out[n + 4] = found[i], a[A_ID], kind, kind == PLANNED and a[A_BODY] or ''
      local model = kind == PLANNED and a[A_MODEL] or ''
      out[n + 5], out[n + 6], out[n + 7] = model, a[A_INPUT] or '0', a[A_OUTPUT] or '0'
      out[n + 8] = a[A_CACHED] or '0'
    end
  end
  return out
end

local function turn(keys, args)
  local shard = shard_of(keys)
  local epoch, receipts = number(args[2] or ''), number(args[4] or '')
  if not shard or #keys ~= 3 then return invalid('keys') end
  if not epoch or epoch == 0 then return invalid('epoch') end
  if not receipts or receipts > MAX_OUTSTANDING or #args < 4 + RECEIPT * receipts then return invalid('receipts') end
  local first = 5 + RECEIPT * receipts
  for i = 5, first - 1, RECEIPT do
    if not (number(args[i + 4]) and number(args[i + 5]) and number(args[i + 6])) then return invalid('usage') end
  end
  if (#args + 1 - first) % 5 ~= 0 or #args - first > 5 * MAX_ASKS then return invalid('requests') end
  for i = first, #args, 5 do
    if not QUEUES[args[i + 3]] then return invalid('tier') end
  end
  local known = tonumber(redis.call('HGET', shard .. ':epochs', args[1]) or '0')
  if known > epoch then return {'stale', string.format('%.0f', known)} end
  if known < epoch then redis.call('HSET', shard .. ':epochs', args[1], args[2]) end

  local at, asked = now(), {}
  forget(shard, keys, args, first, at)
  local list = args[3] == '1' and listed(shard, keys, args[2], at)
  if first <= #args then
    asked = ask(shard, keys, args[1], args[2], {unpack(args, first)}, at)
    if list then list = listed(shard, keys, args[2], at) end
  end
  local outstanding = redis.call('HLEN', keys[2]) + redis.call('HLEN', keys[3])
  return {'ok', outstanding, asked, answers_of(keys, epoch, list, at), list or {}}
end
