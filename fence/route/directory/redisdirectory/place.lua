-- Writes where players are, as directory.Move says, version 1.
-- KEYS  records, see record.lua; that of a player perhaps several times
-- ARGV  by how much an arrival counts more than a sighting, and how long records are kept, in ms; then for each key:
--       the tile; epoch and sequence of the arrival, or zeros of a sighting; the tile that the player has left, epoch
--       and sequence of that; when, in ms since 1970 by the writer's clock
local slack = tonumber(ARGV[1])

local function after(epoch, seq, than_epoch, than_seq)
  return epoch > than_epoch or epoch == than_epoch and seq > than_seq
end

for i, key in ipairs(KEYS) do
  local a = 7 * i - 5
  local to, from, at = ARGV[a + 1], ARGV[a + 4], tonumber(ARGV[a + 7])
  local epoch, seq = tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local place = redis.call('HGET', key, 'place') or ''
  local tile, held_epoch, held_seq, held_at = string.match(place, '^(%x+) (%d+) (%d+) (%d+)$')
  local newer = true
  if tile then
    held_epoch, held_seq, held_at = tonumber(held_epoch), tonumber(held_seq), tonumber(held_at)
    local arrived, seen = epoch > 0, held_epoch == 0
    if not arrived and tile == to then
      newer = false
    elseif arrived and not seen and tile == to then
      newer = after(epoch, seq, held_epoch, held_seq)
    elseif arrived and not seen and tile == from then
      newer = not after(held_epoch, held_seq, tonumber(ARGV[a + 5]), tonumber(ARGV[a + 6]))
    elseif arrived and seen then
      newer = at > held_at - slack
    elseif not arrived and not seen then
      newer = at > held_at + slack
    else
      newer = at > held_at
    end
    at = math.max(at, held_at + 1)
  end
  if newer then
    redis.call('HSET', key, 'place', string.format('%s %.0f %.0f %.0f', to, epoch, seq, at))
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
