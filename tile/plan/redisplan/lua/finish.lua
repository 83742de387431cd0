-- finish. Ends claims. The answer, the usage event and the end of the claim are one step.
-- KEYS  1 requests
-- ARGV  1 worker; then for each end ID, attempt, kind ('1' succeeded, '2' failed, '3' no subject), ms to keep the
--       answer, body, model, input, output and cached tokens, error, pause in ms, attempts
-- Reply {'ok', {1 if the claim was the worker's, else 0}}; {'invalid', what}.
local END = 12

local function finish_one(shard, e, r, at, answered)
  local id, kind = e[1], e[3]
  if kind == '2' and r[ATTEMPT] >= tonumber(e[12]) then
    kill(shard, id, r, e[10], at)
    return
  end
  if kind == '2' then
    r[STATE], r[WORKER], r[ERROR] = RESTING, '', e[10]
    write(shard, id, r)
    redis.call('ZADD', shard .. ':due', at + e[11], id)
    return
  end
  if kind == '1' and e[6] ~= '' then
    bill(shard, id, r[TILE], r[ENTITY], r[REQUESTER], e[6], e[7], e[8], e[9], at)
  end
  local of = answered[r[TILE]] or {gone = {}, answers = {}, keep = 0}
  answered[r[TILE]] = of
  local n = #of.answers
  of.gone[#of.gone + 1], of.answers[n + 1] = r[ENTITY], r[ENTITY]
  local a = {id, kind == '1' and PLANNED or DISCARDED, r[EPOCH], at + e[4], e[5]}
  if kind == '1' and e[6] ~= '' then a[A_MODEL], a[A_INPUT], a[A_OUTPUT], a[A_CACHED] = e[6], e[7], e[8], e[9] end
  of.answers[n + 2] = cmsgpack.pack(a)
  of.keep = math.max(of.keep, tonumber(e[4]))
  answered.ids = answered.ids or {}
  answered.ids[#answered.ids + 1] = id
end

-- store ends the flights that were answered, a few calls for all of a tile.
local function store(shard, answered)
  if not answered.ids then return end
  redis.call('HDEL', shard .. ':requests', unpack(answered.ids))
  redis.call('ZREM', shard .. ':due', unpack(answered.ids))
  answered.ids = nil
  for tile, of in pairs(answered) do
    local key = shard .. ':answers:' .. tile
    redis.call('HDEL', shard .. ':tile:' .. tile, unpack(of.gone))
    redis.call('HSET', key, unpack(of.answers))
    redis.call('PEXPIRE', key, of.keep + UNCOLLECTED)
  end
end

local function finish(keys, args)
  local shard = shard_of(keys)
  if not shard then return invalid('keys') end
  if (#args - 1) % END ~= 0 then return invalid('ends') end
  local ends, ids = {}, {}
  for i = 2, #args, END do
    local e = {unpack(args, i, i + END - 1)}
    if e[3] ~= '1' and e[3] ~= '2' and e[3] ~= '3' then return invalid('kind') end
    for _, f in ipairs({2, 4, 7, 8, 9, 11, 12}) do
      if not number(e[f]) then return invalid('number') end
    end
    ends[#ends + 1], ids[#ids + 1] = e, e[1]
  end
  if #ids == 0 then return {'ok', {}} end
  local held, seen, answered = {}, {}, {}
  local packed = redis.call('HMGET', shard .. ':requests', unpack(ids))
  local at = now()
  for i, e in ipairs(ends) do
    local r = record(shard, e[1], packed[i])
    if not seen[e[1]] and claimed(r, args[1], e[2]) then
      finish_one(shard, e, r, at, answered)
      seen[e[1]], held[i] = true, 1
    else
      held[i] = 0
    end
  end
  store(shard, answered)
  return {'ok', held}
end
