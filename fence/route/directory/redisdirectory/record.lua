-- Reads and writes records of players, version 1.
-- KEYS     records: hashes {tilefence:players:<group>}:<actor> with the fields
--            place      "<tile> <epoch> <seq> <at>", or not there: see place.lua
--            end        when the sessions that the player had then were to end (ms since 1970, this node's clock)
--            @<holder>  when the lease of that process was last renewed (likewise)
-- ARGV     what to do: look, renew, leave or end; the TTL of leases and how long records are kept, in ms; of renew and
--          leave the process
-- Returns  for each key: the place or ''; how long ago the sessions were to end in ms, or -1; the holders
local op, ttl, keep, holder = ARGV[1], tonumber(ARGV[2]), ARGV[3], '@' .. (ARGV[4] or '')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function record(key)
  local out, all = {'', -1}, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local field, value, at = all[i], all[i + 1], tonumber(all[i + 1])
    if field == 'place' and string.match(value, '^%x+ %d+ %d+ %d+$') then
      out[1] = value
    elseif field == 'end' and at then
      if at > now and op == 'renew' then -- the clock was stepped back
        redis.call('HSET', key, 'end', now)
      end
      out[2] = math.max(0, now - at)
    elseif string.sub(field, 1, 1) == '@' then
      -- A lease of the future was renewed before the clock was stepped back.
      if at and now - at < ttl and at - now <= 1000 then
        out[#out + 1] = string.sub(field, 2)
      elseif op == 'renew' then
        redis.call('HDEL', key, field)
      end
    end
  end
  return out
end

local out = {}
for i, key in ipairs(KEYS) do
  if op == 'leave' then
    redis.call('HDEL', key, holder)
  elseif op ~= 'look' then
    redis.call('HSET', key, op == 'end' and op or holder, now)
    redis.call('PEXPIRE', key, keep)
  end
  out[i] = record(key)
end
return out
