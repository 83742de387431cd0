package redisshare

var Key = keyOf
