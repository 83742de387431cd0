package health

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestAQuietTileHasItsConsumers: marks that are renewed as seldom as the lease lets them are no problem, and marks that
// are not renewed are one.
func TestAQuietTileHasItsConsumers(t *testing.T) {
	t.Parallel()
	for lease, renewed := range map[time.Duration]time.Duration{
		0: 40 * time.Second, 2 * time.Minute: 40 * time.Second, 10 * time.Minute: 200 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			const id fence.TileID = 1
			c, begun, at := Consumers{Silent: SilentAfter(lease)}, time.Now(), time.Duration(0)
			c.lacks = map[fence.TileID][2]string{}
			look := func() [2]string {
				at = time.Since(begun)
				m := stream.Mark{Moved: 1 + int64(min(at, time.Hour).Truncate(renewed))}
				c.compare([]stream.TileMarks{{Tile: id, Marks: map[stream.Consumer]stream.Mark{
					stream.BridgeAcked: m, stream.Checkpointed: m}}})
				return c.lacks[id]
			}
			for at < time.Hour { // a round of the largest host takes 32 s
				assert.Empty(t, look(), "lease %v after %v", lease, at)
				time.Sleep(32 * time.Second)
			}
			time.Sleep(max(lease, 2*time.Minute))
			look()
			time.Sleep(max(lease, 2*time.Minute))
			assert.Equal(t, [2]string{noBridge, noCheckpointer}, look(), "lease %v", lease)
		})
	}
}
