package redislib

import (
	"strconv"
	"strings"
)

// Acknowledged is what a replica has reported to its master.
type Acknowledged struct {
	Offset int64 // up to which it has the master's history
	Lag    int64 // seconds since it last reported
}

// AcknowledgedBy reads what each replica that is online has reported, from a master's INFO replication:
//
//	slave0:ip=127.0.0.1,port=7004,state=online,offset=1234,lag=0
//
// It leaves out replicas that have reported nothing, of which the offset is zero. A master lists a replica as online
// once it has sent its data, and the replica reports when it has loaded them: before that it is empty. WAIT counts such
// a replica for a write that was made while the master had no replica, and so no offset.
func AcknowledgedBy(info string) (replicas []Acknowledged) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, ok := strings.CutPrefix(name, "slave")
		if _, err := strconv.ParseUint(number, 10, 64); !ok || err != nil {
			continue
		}
		var r Acknowledged
		online := false
		for field := range strings.SplitSeq(value, ",") {
			k, v, _ := strings.Cut(field, "=")
			switch k {
			case "state":
				online = v == "online"
			case "offset":
				r.Offset, _ = strconv.ParseInt(v, 10, 64) // unreadable: it has reported nothing
			case "lag":
				r.Lag, _ = strconv.ParseInt(v, 10, 64)
			}
		}
		if online && r.Offset > 0 {
			replicas = append(replicas, r)
		}
	}
	return replicas
}
