package door

import "net/http"

// Source is what a server counts as one address, for what is not a connection: of IPv6 the /64. It is empty for a peer
// that may be a load balancer.
func Source(r *http.Request) string {
	source, _ := group(peer(r))
	return source
}
