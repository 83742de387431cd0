package redisshard_test

const envMember = "TILEFENCE_TEST_SHARD_MEMBER"

func memberProcess() int { return 0 }
