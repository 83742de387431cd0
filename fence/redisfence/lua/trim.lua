-- trim. Removes the entries below the lowest watermark; the entry at the floor stays.
-- KEYS  1 marks  2 stream  3 snapshot
-- ARGV  1 lease, ms: a mark not moved or renewed for as long is dropped
-- Reply {'ok', floor, removed, who holds the floor or '', expired consumers…}; {'invalid', what}.
local function trim(keys, args)
  local lease = number(args[1])
  if not lease or lease < 1000 then return invalid('lease') end
  local reply = {'ok', '0', 0, ''}
  local oldest = tonumber(now()) - lease
  local lowest, held = nil, ''
  local floor = redis.call('HGET', keys[3], 'seq')
  if floor and number(floor) then lowest = tonumber(floor) end
  for _, c in ipairs(CONSUMERS) do
    local m = redis.call('HMGET', keys[1], c, c .. '.at')
    if m[1] then
      local s, at = number(m[1]), number(m[2])
      if not s or not at or at < oldest then
        redis.call('HDEL', keys[1], c, c .. '.at')
        reply[#reply + 1] = c
      elseif lowest and s < lowest then
        lowest, floor, held = s, m[1], c
      end
    end
  end
  if not lowest then return reply end
  if redis.call('EXISTS', keys[2]) == 1 then
    local groups = redis.call('XINFO', 'GROUPS', keys[2])
    for _, g in ipairs(groups) do
      local name
      for i = 1, #g, 2 do
        if g[i] == 'name' then name = g[i + 1] end
      end
      local pending = redis.call('XPENDING', keys[2], name)
      if pending[1] > 0 then
        local s = string.match(pending[2], '^(%d+)%-')
        if number(s) and tonumber(s) < lowest then lowest, floor, held = tonumber(s), s, 'group' end
      end
    end
    reply[3] = redis.call('XTRIM', keys[2], 'MINID', floor .. '-0')
  end
  reply[2], reply[4] = floor, held
  return reply
end
