-- revision tells a client which library this is before it replaces anything.
-- Reply {revision number, digest of the source}.
local function revision()
  return {REVISION, DIGEST}
end

redis.register_function('tilefence_commit_v1', commit)
redis.register_function('tilefence_rebase_v1', rebase)
-- A server that is out of memory refuses what grows a tile. A snapshot, which takes the place of the one before, and
-- a trim are the way out of it; marks must not look as if their consumers had stopped.
redis.register_function{function_name = 'tilefence_snapshot_v1', callback = snapshot, flags = {'allow-oom'}}
redis.register_function{function_name = 'tilefence_mark_v1', callback = mark, flags = {'allow-oom'}}
redis.register_function{function_name = 'tilefence_trim_v1', callback = trim, flags = {'allow-oom'}}
redis.register_function{function_name = 'tilefence_expire_v1', callback = expire, flags = {'allow-oom'}}
redis.register_function{function_name = 'tilefence_revision_v1', callback = revision, flags = {'no-writes'}}
