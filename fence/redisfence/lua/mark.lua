-- mark. Moves watermarks of consumers and renews their leases. A mark that comes again, or late, does no harm: it
-- can only climb, and one that may go back holds more than it need until the consumer's next. What is gone is told
-- by the sequence presented, not by the one in force, so that no order of arrival hides it.
-- KEYS  1 marks
-- ARGV  per watermark three: consumer (bridge, pending, checkpoint, or relay:<id>)  seq  '0' it climbs, '1' it may go
--       back, '2' it is removed. At most 16 watermarks; those of one consumer act in turn. Behind them, if the caller
--       says so: the highest epoch of which a consumer has handed anything on, of which the highest of all is kept,
--       whatever becomes of the marks; and the position at which the bridge's watermark is, or ''.
-- Reply {'ok', highest floor ever trimmed to, then per watermark 'ok', 'resync' (entries after seq are gone; it
--       is in force all the same) or 'full' (the tile has 253 relays; it is not)}; {'invalid', what}.
--       'invalid' writes nothing.
local KINDS = {bridge = 1, pending = 2, relay = 3, checkpoint = 4}
local MAX_RELAYS = 253 -- of 256 marks: relays keep neither bridge nor checkpointer out

-- Marks of a tile that was never trimmed go away a day after the last one, in ms: nothing of the tile needs them then.
-- Those of another stay until expire: they say which entries are gone.
local UNTRIMMED = 86400000

local function is_consumer(c)
  if not c then return false end
  local id = c:match('^relay:([%w_-]+)$')
  return (KINDS[c] and c ~= 'relay') or (id and #id <= 64)
end

-- drop removes a mark and what is kept beside it.
local function drop(key, name)
  redis.call('HDEL', key, name, name .. '.at', name .. '.silent', name .. '.last')
end

-- full reports whether the tile has as many relays as it can have. Beside marks the hash has what trims noted, so that
-- its length only says when to count.
local function full(key)
  if redis.call('HLEN', key) < 2 * MAX_RELAYS then return false end
  local marks, all = 0, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i]:sub(1, 6) == 'relay:' and all[i]:sub(-3) == '.at' then marks = marks + 1 end
  end
  return marks >= MAX_RELAYS
end

local function mark(keys, args)
  local n = math.floor(#args / 3)
  if n < 1 or n > 16 then return invalid('watermarks') end
  local fields = {'trimmed', 'shown'}
  local shown = args[3 * n + 1] or '0'
  if not number(shown) then return invalid('shown') end
  local last = args[3 * n + 2] or ''
  local _, last_seq = position(last)
  if last ~= '' and not last_seq then return invalid('last') end
  for i = 1, 3 * n, 3 do
    if not is_consumer(args[i]) then return invalid('consumer') end
    if not sequence(args[i + 1]) then return invalid('seq') end
    local how = args[i + 2]
    if how ~= '0' and how ~= '1' and how ~= '2' then return invalid('how') end
    fields[#fields + 1] = args[i]
  end
  local have = redis.call('HMGET', keys[1], unpack(fields))
  local trimmed = sequence(have[1]) or 0
  local reply = {'ok', sequence(have[1]) and have[1] or '0'}
  local at = now()
  local moved = {} -- by this call
  for i = 1, 3 * n, 3 do
    local consumer, seq = args[i], args[i + 1]
    local s = tonumber(seq)
    local old = moved[consumer]
    if old == nil then old = have[#reply + 1] end
    if args[i + 2] == '2' then
      drop(keys[1], consumer)
      moved[consumer] = false
      reply[#reply + 1] = 'ok'
    elseif not old and not KINDS[consumer] and full(keys[1]) then
      reply[#reply + 1] = 'full'
    else
      if old and args[i + 2] == '0' and (sequence(old) or 0) > s then seq = old end
      redis.call('HSET', keys[1], consumer, seq, consumer .. '.at', at)
      if consumer == 'bridge' and seq == last_seq then redis.call('HSET', keys[1], 'bridge.last', last) end
      if not have[1] then redis.call('PEXPIRE', keys[1], UNTRIMMED) end
      moved[consumer] = seq
      reply[#reply + 1] = s + 1 < trimmed and 'resync' or 'ok'
    end
  end
  if tonumber(shown) > (number(have[2]) or 0) then
    redis.call('HSET', keys[1], 'shown', shown)
    if not have[1] then redis.call('PEXPIRE', keys[1], UNTRIMMED) end
  end
  return reply
end
