-- claim. Returns to the queue what is due, and gives requests to a worker.
-- KEYS  1 requests
-- ARGV  1 worker  2 lease, ms  3 slots for either tier  4 slots for players' requests, filled before  5 '1' if those of
--       either tier begin with the background, else '0'  6 attempts after which a request whose lease ended is dead
-- Reply {'ok', tiles with players' requests waiting, the same of the background, {requests, see view}};
--       {'invalid', what}.

-- sweep returns to the head of their tiles' queues requests whose pause is over or whose worker has lost its lease.
local function sweep(shard, attempts, at)
  local due = redis.call('ZRANGE', shard .. ':due', '-inf', at, 'BYSCORE', 'LIMIT', 0, SWEEP)
  local heard = {}
  for _, id in ipairs(due) do
    local r = read(shard, id)
    if not r then
      redis.call('ZREM', shard .. ':due', id)
    elseif r[STATE] == RUNNING and r[ATTEMPT] >= attempts then
      kill(shard, id, r, 'the lease of its last attempt has ended', at)
    else
      r[STATE], r[WORKER] = WAITING, ''
      write(shard, id, r)
      redis.call('ZREM', shard .. ':due', id)
      push(shard, r[TIER], r[TILE], {id}, 'LPUSH')
      heard[r[TIER]] = true
    end
  end
  if heard['1'] then wake(shard, '1') end
  if heard['2'] then wake(shard, '2') end
end

-- take gives up to n requests of a tier to a worker, from each tile in turn, and returns how many it found.
local function take(shard, tier, n, worker, lease, at, out)
  local records, due, took = {}, {}, 0
  while took < n do
    local ids = pop(shard, tier, n - took)
    if not ids then break end
    local packed = redis.call('HMGET', shard .. ':requests', unpack(ids))
    for i, id in ipairs(ids) do
      local r = record(shard, id, packed[i])
      if r and r[STATE] == WAITING and r[TIER] == tier then
        r[STATE], r[WORKER], r[ATTEMPT] = RUNNING, worker, r[ATTEMPT] + 1
        records[#records + 1], records[#records + 2] = id, cmsgpack.pack(r)
        due[#due + 1], due[#due + 2] = at + lease, id
        took = took + 1
        view(out, id, r, at)
      end
    end
  end
  if took > 0 then
    redis.call('HSET', shard .. ':requests', unpack(records))
    redis.call('ZADD', shard .. ':due', unpack(due))
  end
  return took
end

local function claim(keys, args)
  local shard = shard_of(keys)
  if not shard then return invalid('keys') end
  local lease, any, players, attempts = number(args[2] or ''), number(args[3] or ''), number(args[4] or ''),
    number(args[6] or '')
  if (args[1] or '') == '' then return invalid('worker') end
  if not lease or lease == 0 then return invalid('lease') end
  if not any or not players or any > 256 or players > 256 then return invalid('slots') end
  if not attempts or attempts == 0 then return invalid('attempts') end
  local at, out = now(), {}
  sweep(shard, attempts, at)
  take(shard, '1', players, args[1], lease, at, out)
  if args[5] == '1' then any = any - take(shard, '2', any, args[1], lease, at, out) end
  any = any - take(shard, '1', any, args[1], lease, at, out)
  take(shard, '2', any, args[1], lease, at, out)
  return {'ok', redis.call('LLEN', shard .. ':player'), redis.call('LLEN', shard .. ':background'), out}
end

-- claimed is a request if the worker has this claim on it.
local function claimed(r, worker, attempt)
  return r and r[STATE] == RUNNING and r[WORKER] == worker and r[ATTEMPT] == tonumber(attempt)
end

-- renew. Extends leases.
-- KEYS  1 requests
-- ARGV  1 worker  2 lease, ms; then an ID and an attempt for each claim
-- Reply {'ok', {IDs of lost claims}}; {'invalid', what}.
local function renew(keys, args)
  local shard = shard_of(keys)
  local lease = number(args[2] or '')
  if not shard then return invalid('keys') end
  if not lease or lease == 0 then return invalid('lease') end
  local lost, till = {}, now() + lease
  for i = 3, #args, 2 do
    if claimed(read(shard, args[i]), args[1], args[i + 1]) then
      redis.call('ZADD', shard .. ':due', till, args[i])
    else
      lost[#lost + 1] = args[i]
    end
  end
  return {'ok', lost}
end
