-- revision tells a client which library this is.
local function revision() return {REVISION, DIGEST} end

local function register(name, f, ...)
  redis.register_function{function_name = 'tilefence_match_' .. name .. '_v1', callback = f, flags = {...}}
end

register('enqueue', enqueue)
register('hold', note)
register('claim', claim)
register('record', record)
register('publish', publish)
register('dissolve', dissolve)
register('requeue', requeue)
register('offer', offer)
register('allocate', allocate)
-- What ends things, and what keeps a worker alive, goes on when memory is full.
register('cancel', cancel, 'allow-oom')
register('heartbeat', heartbeat, 'allow-oom')
register('release', release, 'allow-oom')
register('leave', leave, 'allow-oom')
register('reclaim', reclaim, 'allow-oom')
register('withdraw', withdraw, 'allow-oom')
register('take', seat_take, 'allow-oom')
register('free', seat_free, 'allow-oom')
register('lapsed', lapsed, 'allow-oom')
register('settled', settled, 'allow-oom')
register('open', open_in, 'no-writes')
register('read', read, 'no-writes')
register('list', list, 'no-writes')
register('depth', depth, 'no-writes')
register('tiles', tiles, 'no-writes')
register('revision', revision, 'no-writes')
