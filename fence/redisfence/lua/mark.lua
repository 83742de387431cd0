-- mark. Moves one consumer's watermark and renews its lease. It never goes back.
-- KEYS  1 marks
-- ARGV  1 consumer: bridge, pending, relay or checkpoint  2 seq
-- Reply {'ok', seq now in force}; {'invalid', what}.
local CONSUMERS = {'bridge', 'pending', 'relay', 'checkpoint'}

local function mark(keys, args)
  local known = false
  for _, c in ipairs(CONSUMERS) do
    if c == args[1] then known = true end
  end
  if not known then return invalid('consumer') end
  local s = number(args[2])
  if not s then return invalid('seq') end
  local have = redis.call('HGET', keys[1], args[1])
  local seq = args[2]
  if have and (number(have) or 0) > s then seq = have end
  redis.call('HSET', keys[1], args[1], seq, args[1] .. '.at', now())
  return {'ok', seq}
end
