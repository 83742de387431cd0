-- revision tells a client which library this is before it replaces anything.
-- Reply {revision number, digest of the source}.
local function revision()
  return {REVISION, DIGEST}
end

redis.register_function('tilefence_commit_v1', commit)
redis.register_function('tilefence_rebase_v1', rebase)
redis.register_function('tilefence_snapshot_v1', snapshot)
redis.register_function('tilefence_mark_v1', mark)
redis.register_function('tilefence_trim_v1', trim)
redis.register_function{function_name = 'tilefence_revision_v1', callback = revision, flags = {'no-writes'}}
