-- One heartbeat of a holder of shards, revision 2. The steps are those of memshard, which specifies them.
--
-- KEYS[1]  the group's book, a hash
--   ranges        digest of the ranges
--   shards        how many there are
--   token         the last granted
--   settled       ms; before it, free shards are not granted
--   heard         ms; when a holder was last heard
--   h:<holder>    "<expires, ms> <beat> <state>", state s: sharing, r: revived, l: leaving or left
--   s:<shard>     "<token> <0, or 1: to be given back> <holder, empty if free>"
-- ARGV     holder, beat, digest, shards, TTL in ms, "1" if leaving, number of held shards, for each of
--          them shard and token, then the released shards
-- Replies  {"ok", holders, share, free, then for each lease of the holder: shard, token, 0 or 1}
--          {"late"}, {"full"}, {"ranges", digest, shards} or {"corrupt", field}: a
--          refusal, at which no more was written than who was not heard
--
-- The caller has checked the arguments. The work is bounded by 256 shards and 256 holders.

local maxHolders, keepBook = 256, 7 * 24 * 3600 * 1000
local name, beat, digest, shards, ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local leaving = ARGV[6] == '1'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function int(n) return string.format('%.0f', n) end

-- Read the book.
local fields = redis.call('HGETALL', KEYS[1])
local book, holders, entries, members = {}, {}, {}, 0
for i = 1, #fields, 2 do
  local field, value = fields[i], fields[i + 1]
  local kind, rest = string.sub(field, 1, 2), string.sub(field, 3)
  if kind == 'h:' then
    local expires, last, state = string.match(value, '^(%d+) (%d+) ([srl])$')
    if not expires then return {'corrupt', field} end
    holders[rest] = {expires = tonumber(expires), beat = tonumber(last), state = state}
    members = members + 1
  elseif kind == 's:' then
    local token, asked, holder = string.match(value, '^(%d+) ([01]) (.*)$')
    if not token or not tonumber(rest) then return {'corrupt', field} end
    entries[tonumber(rest)] = {token = tonumber(token), asked = asked == '1', holder = holder}
  else
    book[field] = value
  end
end
local token, settled, heard = tonumber(book.token or '0'), tonumber(book.settled or '0'), tonumber(book.heard or '0')
if not token or not settled or not heard then return {'corrupt', 'token'} end
if holders[name] and beat < holders[name].beat then return {'late'} end

-- Follow a clock that was put back, so that no lease outlives its holder by as much.
if heard > now then
  for _, h in pairs(holders) do
    h.expires, h.changed = math.max(0, h.expires - (heard - now)), true
  end
  settled = math.max(0, settled - (heard - now))
  heard = now
end

-- Strike off who was not heard; but if nobody was, the store was away, and all get a whole TTL.
local away, struck = now - heard > ttl / 2, {}
for who, h in pairs(holders) do
  if away and h.state == 's' then
    h.state, h.expires, h.changed = 'r', math.max(h.expires, now + ttl), true
  end
  if h.expires <= now then struck[who] = true end
end
for _, e in pairs(entries) do
  if struck[e.holder] then
    e.holder, e.asked, e.changed = '', false, true
  end
end
for who in pairs(struck) do
  holders[who] = nil
  members = members - 1
end

-- write writes what has changed, and the given fields and values.
local function write(values)
  for who, h in pairs(holders) do
    if h.changed then
      values[#values + 1] = 'h:' .. who
      values[#values + 1] = int(h.expires) .. ' ' .. int(h.beat) .. ' ' .. h.state
    end
  end
  for i, e in pairs(entries) do
    if e.changed then
      values[#values + 1] = 's:' .. i
      values[#values + 1] = int(e.token) .. ' ' .. (e.asked and '1' or '0') .. ' ' .. e.holder
    end
  end
  local gone = {}
  for who in pairs(struck) do gone[#gone + 1] = 'h:' .. who end
  if #gone > 0 then redis.call('HDEL', KEYS[1], unpack(gone)) end
  redis.call('HSET', KEYS[1], unpack(values))
end

-- Compare the ranges.
if book.ranges ~= digest then
  local has = {}
  for _, e in pairs(entries) do has[e.holder] = true end
  for who, h in pairs(holders) do
    if h.state ~= 'l' or has[who] then
      write({'heard', int(now), 'settled', int(settled)})
      return {'ranges', book.ranges or '', tonumber(book.shards or '0')}
    end
  end
  if not book.ranges and tonumber(ARGV[7]) > 0 then settled = now + ttl end
  for i in pairs(entries) do redis.call('HDEL', KEYS[1], 's:' .. i) end
  entries = {}
end
if not holders[name] then
  if members >= maxHolders then
    write({'heard', int(now), 'settled', int(settled)})
    return {'full'}
  end
  members = members + 1
end
holders[name] = {expires = now + ttl, beat = beat, state = leaving and 'l' or 's', changed = true}
struck[name] = nil

-- Release, then keep what nobody had since.
for i = 0, shards - 1 do
  entries[i] = entries[i] or {token = 0, asked = false, holder = ''}
end
local first = 8 + 2 * tonumber(ARGV[7])
for i = first, #ARGV do
  local e = entries[tonumber(ARGV[i])]
  if e.holder == name then
    e.holder, e.asked, e.changed = '', false, true
  end
end
for i = 8, first - 1, 2 do
  local e, held = entries[tonumber(ARGV[i])], tonumber(ARGV[i + 1])
  if e.holder == '' and held >= e.token then
    e.holder, e.token, e.changed = name, held, true
    token = math.max(token, held)
  end
end

-- Settle the share.
local sharing, counts = 0, {}
for i = 0, shards - 1 do
  local e = entries[i]
  if not e.asked then counts[e.holder] = (counts[e.holder] or 0) + 1 end
end
for _, h in pairs(holders) do
  if h.state ~= 'l' then sharing = sharing + 1 end
end
local mine, share = counts[name] or 0, 0
if not leaving then
  local low, above = math.floor(shards / sharing), 0
  local more = shards - low * sharing
  for who, h in pairs(holders) do
    if h.state ~= 'l' and (counts[who] or 0) > low then above = above + 1 end
  end
  share = low
  if (mine > low and above <= more) or (mine <= low and above < more) then share = low + 1 end
end

-- Ask for what is above it, grant what is below.
local free, leases = 0, {}
for i = shards - 1, 0, -1 do
  local e = entries[i]
  if mine > share and e.holder == name and not e.asked then
    e.asked, e.changed = true, true
    mine = mine - 1
  end
end
for i = 0, shards - 1 do
  local e = entries[i]
  if e.holder == '' and mine < share and now >= settled then
    token = token + 1
    e.holder, e.token, e.changed = name, token, true
    mine = mine + 1
  end
  if e.holder == '' then
    free = free + 1
  elseif e.holder == name then
    leases[#leases + 1] = i
    leases[#leases + 1] = e.token
    leases[#leases + 1] = e.asked and 1 or 0
  end
end

write({'heard', int(now), 'token', int(token), 'settled', int(settled), 'ranges', digest, 'shards', int(shards)})
redis.call('PEXPIRE', KEYS[1], keepBook)

local reply = {'ok', sharing, share, free}
for _, n in ipairs(leases) do reply[#reply + 1] = n end
return reply
