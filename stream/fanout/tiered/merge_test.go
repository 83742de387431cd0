package tiered_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

// TestMergeGap: a frame that neither tier has brought is given up as soon as both have gone past it, without a wait;
// one that only one tier is past, after Hold. What follows arrives in order, once.
func TestMergeGap(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		relay := w.process(settings())
		var got []fence.Seq
		stop, err := relay.Subscribe(t.Context(), w.tile, func(data []byte) {
			e, err := fence.DecodeEntry(data)
			require.NoError(t, err)
			got = append(got, e.Seq)
		})
		require.NoError(t, err)
		defer stop()
		frames := w.commit(10)
		send := func(to fanout.Publisher, seqs ...int) {
			for _, seq := range seqs {
				_, err := to.Publish(t.Context(), frames[seq-1:seq])
				require.NoError(t, err)
			}
			synctest.Wait()
		}
		send(w.ordinary, 1, 2)
		send(w.broker, 1, 2)
		require.Equal(t, []fence.Seq{1, 2}, got, "both tiers have shown that nothing comes before")
		send(w.broker, 4)
		require.Equal(t, []fence.Seq{1, 2}, got, "3 may be under way on the other tier")
		send(w.ordinary, 5)
		require.Equal(t, []fence.Seq{1, 2, 4, 5}, got, "it is not")
		send(w.broker, 5)
		require.Equal(t, []fence.Seq{1, 2, 4, 5}, got)
		send(w.broker, 7, 8)
		time.Sleep(250*time.Millisecond - time.Millisecond)
		require.Equal(t, []fence.Seq{1, 2, 4, 5}, got)
		send(w.ordinary, 6)
		require.Equal(t, []fence.Seq{1, 2, 4, 5, 6, 7, 8}, got)
		send(w.broker, 10)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []fence.Seq{1, 2, 4, 5, 6, 7, 8, 10}, got)
		s := relay.Stats()
		require.Equal(t, uint64(2), s.Missed)
		require.Equal(t, uint64(3), s.Duplicates)
	})
}

// TestHeldBytesAreBounded: frames that wait behind a gap are bounded by their bytes, too. Beyond the bound the oldest
// is delivered without its predecessor, before its time, and what was delivered is no longer counted.
func TestHeldBytesAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		relay := w.process(settings())
		var got []fence.Seq
		stop, err := relay.Subscribe(t.Context(), w.tile, func(data []byte) {
			e, err := fence.DecodeEntry(data)
			require.NoError(t, err)
			got = append(got, e.Seq)
		})
		require.NoError(t, err)
		defer stop()
		frames := w.commitOf(10, fence.MaxPayload-1024)
		send := func(to fanout.Publisher, seqs ...int) {
			for _, seq := range seqs {
				_, err := to.Publish(t.Context(), frames[seq-1:seq])
				require.NoError(t, err)
			}
			synctest.Wait()
		}
		send(w.ordinary, 1)
		send(w.broker, 1)
		require.Equal(t, []fence.Seq{1}, got)
		for _, gap := range []struct {
			seqs []int
			got  []fence.Seq
		}{{[]int{3, 4}, []fence.Seq{1}}, {[]int{5}, []fence.Seq{1, 3, 4, 5}},
			{[]int{7, 8}, []fence.Seq{1, 3, 4, 5}}, {[]int{9}, []fence.Seq{1, 3, 4, 5, 7, 8, 9}}} {
			send(w.broker, gap.seqs...)
			require.Equal(t, gap.got, got, "after %d", gap.seqs)
		}
		require.Equal(t, uint64(2), relay.Stats().Missed)
	})
}

// TestHandedInBoth: while both tiers carry a tile, a message that only the broker took is not handed over as long as a
// subscriber may hear the ordinary tier alone; and of many tiles in a call, each message's fate is known.
func TestHandedInBoth(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		bridge, well, lame := w.process(settings()), w.process(settings()), w.process(settings())
		lame.broker.deny = true
		well.watch()
		lame.watch()
		bridge.tick(3 * time.Second)
		require.Equal(t, tiered.Both, bridge.state())
		bridge.ordinary.set(func(p *path) { p.down = true })
		m := append(w.commit(2), fanout.Message{Tile: 99, Data: []byte("another")})
		sent, err := bridge.Publish(t.Context(), m)
		require.Zero(t, sent)
		var failed *fanout.PublishError
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, errDown)
		for i := range m {
			require.False(t, failed.Handed[i])
		}
		time.Sleep(interval)
		_, err = bridge.Publish(t.Context(), m)
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Handed[0], "the ordinary tier is down; those who hear the broker go on")
		require.True(t, failed.Handed[1])
		require.False(t, failed.Handed[2], "a tile of the ordinary tier waits")
	})
}
