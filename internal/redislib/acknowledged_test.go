package redislib

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAcknowledgedBy(t *testing.T) {
	t.Parallel()
	info := "role:master\r\nconnected_slaves:5\r\n" +
		"slave0:ip=127.0.0.1,port=1,state=online,offset=90,lag=0\r\n" +
		"slave1:ip=127.0.0.1,port=2,state=online,offset=100,lag=2,type=replica\r\n" +
		"slave2:ip=127.0.0.1,port=3,state=wait_bgsave,offset=100,lag=0\r\n" +
		"slave3:ip=127.0.0.1,port=4,state=online,offset=0,lag=0\r\n" + // it has not loaded what it was sent
		"slave4:ip=127.0.0.1,port=5,state=online,lag=0\r\n" +
		"slave_read_only:1\r\nmaster_repl_offset:100\r\n"
	require.Equal(t, []Acknowledged{{Offset: 90}, {Offset: 100, Lag: 2}}, AcknowledgedBy(info))
	require.Empty(t, AcknowledgedBy("role:master\r\nmaster_repl_offset:0\r\n"))
}
