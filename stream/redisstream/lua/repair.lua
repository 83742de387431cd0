#!lua flags=allow-oom
-- repair. Reads what a tile has, or mends it if it is as it was read. It is a script, not a function of the library:
-- only tilectl runs it.
-- KEYS  1 owner  2 stream  3 snapshot  4 marks  5 dead letters
-- ARGV  1 how many values follow that must stand, as they were read; '0' to read  then those values  then steps, each
--       its name and what it takes: 'delete' key; 'cut' id, the last entry that stays; 'set' key field old new, where a
--       value has '+' before it and '-' is none. A key is its number above.
-- Reply when it reads {values, snapshot, marks, milliseconds of the server's clock, first entry}; else 'ok', or what
--       has changed since it was read: a name of NAMES, or 'marks', and nothing is written.
local NAMES = {'owner', 'stream', 'snapshot'}

local seen, of = {}, {} -- what stands, and of which key each value is
local function note(key, v)
  if type(v) == 'number' then v = ('%.0f'):format(v) end
  seen[#seen + 1] = v and '+' .. v or '-'
  of[#seen] = key
end

local kinds = {}
for i = 1, #KEYS do
  kinds[i] = redis.call('TYPE', KEYS[i]).ok
  note(NAMES[i] or 'marks', kinds[i])
end
local function fields(i, ...)
  for _, v in ipairs(redis.call('HMGET', KEYS[i], ...)) do note(NAMES[i], v) end
end
if kinds[1] == 'hash' then
  fields(1, 'head', 'tick', 'contact')
  note('owner', redis.call('PEXPIRETIME', KEYS[1]))
end
if kinds[2] == 'stream' then
  local info, by = redis.call('XINFO', 'STREAM', KEYS[2]), {}
  for i = 1, #info, 2 do by[info[i]] = info[i + 1] end
  for _, name in ipairs({'length', 'last-generated-id', 'entries-added'}) do note('stream', by[name]) end
end
if kinds[3] == 'hash' then fields(3, 'epoch', 'seq', 'chain', 'tick', 'contact', 'sum', 'at') end

local function all(i) return kinds[i] == 'hash' and redis.call('HGETALL', KEYS[i]) or {} end
local expected = tonumber(ARGV[1])
if expected == 0 then
  local t = redis.call('TIME')
  return {seen, all(3), all(4), t[1] .. ('%06d'):format(t[2]):sub(1, 3),
    kinds[2] == 'stream' and redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1) or {}}
end

for i = 1, math.max(expected, #seen) do -- the kinds come first, so a key that came or went is named
  if seen[i] ~= ARGV[i + 1] then return of[i] or 'marks' end
end

local function cut(id)
  repeat
    local page = redis.call('XREVRANGE', KEYS[2], '+', '(' .. id, 'COUNT', 100)
    for _, entry in ipairs(page) do redis.call('XDEL', KEYS[2], entry[1]) end
  until #page == 0
  redis.call('XSETID', KEYS[2], id, 'ENTRIESADDED', redis.call('XLEN', KEYS[2]), 'MAXDELETEDID', id)
end

-- The steps are checked in the first round, and done in the second.
for round = 1, 2 do
  local i = expected + 2
  while i <= #ARGV do
    local step, key = ARGV[i], ARGV[i + 1]
    if step == 'set' then
      key = KEYS[tonumber(key)]
      local field, old, new = ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
      local v = redis.call('HGET', key, field)
      if round == 1 and (v and '+' .. v or '-') ~= old then return 'marks' end
      if round == 2 and new == '-' then redis.call('HDEL', key, field) end
      if round == 2 and new ~= '-' then redis.call('HSET', key, field, new:sub(2)) end
      i = i + 5
    else
      if round == 2 and step == 'delete' then redis.call('DEL', KEYS[tonumber(key)]) end
      if round == 2 and step == 'cut' then cut(key) end
      i = i + 2
    end
  end
end
return 'ok'
