-- A heartbeat of one member of a group, version 1.
-- KEYS[1]  sorted set: the members, by when each was last heard (ms since 1970, this node's clock)
-- ARGV     the member, the TTL in ms
-- Returns  1 if the member was on the list before, else 0; then all members on it now
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[2])
local known, living = 0, {}
local list = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #list, 2 do
  local member, heard = list[i], tonumber(list[i + 1])
  if heard <= now - ttl then
    redis.call('ZREM', KEYS[1], member)
  elseif member == ARGV[1] then
    known = 1
  else
    if heard > now then -- the clock was stepped back
      redis.call('ZADD', KEYS[1], now, member)
    end
    living[#living + 1] = member
  end
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('PEXPIRE', KEYS[1], 100 * ttl) -- an abandoned list goes away by itself
living[#living + 1] = ARGV[1]
return {known, unpack(living)}
