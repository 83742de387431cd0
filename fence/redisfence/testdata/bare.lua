#!lua name=tilefence_bare
-- The least that a fence in a function can be: one string compared, one entry, one hash, one time to live. No
-- argument is checked, and a refusal says nothing.
-- KEYS  1 owner  2 stream   ARGV  1 prev  2 next  3 sequence  4 tick  5 frame  6 time to live, ms
redis.register_function('tilefence_bare_commit', function(keys, args)
  if redis.call('HGET', keys[1], 'head') ~= args[1] then return 'refused' end
  redis.call('XADD', keys[2], args[3] .. '-0', 'frame', args[5])
  redis.call('HSET', keys[1], 'head', args[2], 'tick', args[4])
  redis.call('PEXPIRE', keys[1], args[6])
  return 'ok'
end)
