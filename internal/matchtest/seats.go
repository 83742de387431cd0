package matchtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
)

func (s scene) offer(tile fence.TileID, seats int, ttl time.Duration) match.Load {
	s.Helper()
	l, err := s.Offer(s.Context(), s.pool, match.Offer{Tile: tile, Epoch: 5, Contact: fmt.Sprint("c", tile),
		Seats: seats, Info: map[string]string{"gateway": "wss://g"}}, ttl)
	require.NoError(s, err)
	return l
}

// order asks for one ticket "<id>-t" of so many players.
func (s scene) order(id string, n int) match.Order {
	return match.Order{Match: id, Shard: s.shard, Tickets: []match.Party{{Ticket: id + "-t", Seats: n}}}
}

func (s scene) allocate(hold time.Duration, orders ...match.Order) []match.Allocation {
	s.Helper()
	a, err := s.Allocate(s.Context(), s.pool, orders, hold)
	require.NoError(s, err)
	require.Len(s, a, len(orders))
	return a
}

func (s scene) used(tile fence.TileID) int {
	s.Helper()
	list, err := s.Tiles(s.Context(), s.pool)
	require.NoError(s, err)
	for _, l := range list {
		if l.Tile == tile {
			return l.Used
		}
	}
	return 0
}

func (s scene) lapsed() []match.Lapse {
	s.Helper()
	l, err := s.Lapsed(s.Context(), s.pool, 100)
	require.NoError(s, err)
	return l
}

const minutes = 10 * time.Minute

func seatLimit(s scene) {
	s.offer(7, 5, long)
	answers := s.allocate(minutes, s.order("a", 2), s.order("b", 2), s.order("c", 2), s.order("d", 1))
	require.NoError(s, answers[0].Err)
	require.NoError(s, answers[1].Err)
	require.NoError(s, answers[3].Err)
	denied(s, answers[2].Err, match.ErrNoSeat, "match c: it needs 2 on a tile of pool "+s.pool+" that serves")
	seen := make(map[int]bool)
	for _, i := range []int{0, 1, 3} {
		for _, seats := range answers[i].Assignment.Seats {
			for _, n := range seats {
				require.False(s, seen[n])
				require.True(s, n >= 0 && n < 5)
				seen[n] = true
			}
		}
	}
	require.Len(s, seen, 5)
	require.Equal(s, 5, s.offer(7, 3, long).Used, "fewer seats: who sits stays")
	require.NoError(s, s.Free(s.Context(), s.pool, "a", "a-t"))
	require.NoError(s, s.Free(s.Context(), s.pool, "a", "a-t"))
	require.Equal(s, 3, s.used(7))
	require.Error(s, s.allocate(minutes, s.order("e", 1))[0].Err)
	s.offer(7, 5, long)
	require.NoError(s, s.allocate(minutes, s.order("e", 2))[0].Err)
	require.Error(s, s.allocate(minutes, s.order("f", 1))[0].Err)
}

func sameAnswer(s scene) {
	s.offer(7, 10, long)
	order := match.Order{Match: "m", Shard: s.shard,
		Tickets: []match.Party{{Ticket: "x", Seats: 2}, {Ticket: "y", Seats: 1}}}
	first := s.allocate(minutes, order)[0]
	require.NoError(s, first.Err)
	a := first.Assignment
	require.Len(s, a.Seats["x"], 2)
	require.Len(s, a.Seats["y"], 1)
	require.Equal(s, fence.TileID(7), a.Tile)
	require.Equal(s, fence.Epoch(5), a.Epoch)
	require.Equal(s, "c7", a.Contact)
	require.Equal(s, map[string]string{"gateway": "wss://g"}, a.Info)
	require.WithinDuration(s, time.Now().Add(minutes), a.TakeBy, time.Minute)
	require.Equal(s, first, s.allocate(minutes, order)[0])
	require.Equal(s, 3, s.used(7))
	require.NoError(s, s.Take(s.Context(), s.pool, "m", "x"))
	require.NoError(s, s.Take(s.Context(), s.pool, "m", "x"))
	require.NoError(s, s.Free(s.Context(), s.pool, "m", "x"))
	require.NoError(s, s.Free(s.Context(), s.pool, "m", "y"))
	require.Equal(s, first, s.allocate(minutes, order)[0], "and when its players have left")
	require.Zero(s, s.used(7))
	require.ErrorIs(s, s.Take(s.Context(), s.pool, "m", "x"), match.ErrLapsed)
	require.ErrorIs(s, s.Take(s.Context(), s.pool, "other", "x"), match.ErrLapsed)
	require.Empty(s, s.lapsed())
}

func onlyServing(s scene) {
	require.ErrorIs(s, s.allocate(minutes, s.order("a", 1))[0].Err, match.ErrNoSeat, "no tile at all")
	s.offer(7, 10, short)
	s.offer(8, 10, long)
	pinned := s.order("b", 1)
	pinned.Tile = 9
	require.ErrorIs(s, s.allocate(minutes, pinned)[0].Err, match.ErrNoSeat, "not that tile")
	time.Sleep(2 * short)
	pinned.Tile = 7
	require.ErrorIs(s, s.allocate(minutes, pinned)[0].Err, match.ErrNoSeat, "its offer has ended")
	for i := range 10 {
		require.Equal(s, fence.TileID(8), s.allocate(minutes, s.order(fmt.Sprint("m", i), 1))[0].Assignment.Tile)
	}
	require.Error(s, s.allocate(minutes, s.order("m10", 1))[0].Err)
	s.offer(7, 10, long)
	require.Equal(s, fence.TileID(7), s.allocate(minutes, pinned)[0].Assignment.Tile, "backfill")
	list, err := s.Tiles(s.Context(), s.pool)
	require.NoError(s, err)
	require.Len(s, list, 2)
	for _, l := range list {
		require.True(s, l.Serving)
	}
}

func staleOffer(s scene) {
	s.offer(7, 10, long)
	s.allocate(minutes, s.order("a", 4))
	_, err := s.Offer(s.Context(), s.pool, match.Offer{Tile: 7, Epoch: 4, Contact: "old", Seats: 99}, long)
	denied(s, err, match.ErrStaleOffer, "tile "+fence.TileID(7).String()+": epoch 4, and epoch 5 offers it")
	require.ErrorIs(s, s.Withdraw(s.Context(), s.pool, 7, 4), match.ErrStaleOffer)
	l, err := s.Offer(s.Context(), s.pool, match.Offer{Tile: 7, Epoch: 6, Contact: "new", Seats: 10}, long)
	require.NoError(s, err)
	require.Equal(s, 4, l.Used, "a take-over keeps the players' seats")
	require.Equal(s, "new", s.allocate(minutes, s.order("b", 1))[0].Assignment.Contact)
}

func fullestFirst(s scene) {
	s.offer(7, 10, long)
	s.offer(8, 6, long)
	require.Equal(s, fence.TileID(8), s.allocate(minutes, s.order("a", 4))[0].Assignment.Tile)
	require.Equal(s, fence.TileID(7), s.allocate(minutes, s.order("b", 4))[0].Assignment.Tile)
	require.Equal(s, fence.TileID(8), s.allocate(minutes, s.order("c", 2))[0].Assignment.Tile)
}

func seatLapse(s scene) {
	s.offer(7, 4, long)
	s.allocate(minutes, s.order("kept", 1))
	s.takeInTime()
	require.Empty(s, s.lapsed())
	answers := s.allocate(short, s.order("b", 2))
	time.Sleep(2 * short)
	require.ErrorIs(s, s.Take(s.Context(), s.pool, "b", "b-t"), match.ErrLapsed)
	want := []match.Lapse{{Shard: s.shard, Match: "b", Ticket: "b-t"}}
	for range 2 { // until it is settled
		require.Equal(s, want, s.lapsed())
	}
	require.Equal(s, 2, s.used(7))
	require.Equal(s, answers[0], s.allocate(minutes, s.order("b", 2))[0])
	require.NoError(s, s.allocate(minutes, s.order("c", 2))[0].Err, "the seats are free again")
	for range 2 {
		require.NoError(s, s.Settled(s.Context(), s.pool, want))
		require.Empty(s, s.lapsed())
	}
	require.Equal(s, 4, s.used(7))
	require.NoError(s, s.Free(s.Context(), s.pool, "b", "b-t"))
	require.Equal(s, 4, s.used(7))
}

// takeInTime has a seat held for a short while and takes it before it lapses.
func (s scene) takeInTime() {
	s.Helper()
	for i := 0; ; i++ {
		order := s.order(fmt.Sprint("a", i), 1)
		began := time.Now()
		require.NoError(s, s.allocate(short, order)[0].Err)
		err := s.Take(s.Context(), s.pool, order.Match, order.Tickets[0].Ticket)
		if err == nil {
			return
		}
		require.ErrorIs(s, err, match.ErrLapsed)
		require.GreaterOrEqual(s, time.Since(began), short)
		require.NoError(s, s.Settled(s.Context(), s.pool, s.lapsed()))
	}
}

func withdrawn(s scene) {
	s.offer(7, 10, long)
	s.allocate(minutes, s.order("held", 1), s.order("taken", 2))
	require.NoError(s, s.Take(s.Context(), s.pool, "taken", "taken-t"))
	for range 2 {
		require.NoError(s, s.Withdraw(s.Context(), s.pool, 7, 5))
		require.Equal(s, []match.Lapse{{Shard: s.shard, Match: "held", Ticket: "held-t"}}, s.lapsed())
	}
	require.Error(s, s.allocate(minutes, s.order("a", 1))[0].Err)
	require.Zero(s, s.offer(7, 10, long).Used)
}

func seatBounds(s scene) {
	for _, o := range []match.Offer{{}, {Tile: 1, Contact: "a", Seats: 1}, {Tile: 1, Epoch: 1, Seats: 1},
		{Tile: 1, Epoch: 1, Contact: "a"}, {Tile: 1, Epoch: 1, Contact: "a", Seats: match.MaxSeats + 1}} {
		_, err := s.Offer(s.Context(), s.pool, o, long)
		require.ErrorIs(s, err, fence.ErrInvalidArgument, "%+v", o)
	}
	_, err := s.Offer(s.Context(), s.pool, match.Offer{Tile: 1, Epoch: 1, Contact: "a", Seats: 1}, 0)
	require.ErrorIs(s, err, fence.ErrInvalidArgument)
	for _, o := range []match.Order{{}, {Match: "m"}, s.order("m", 0), s.order("a b", 1)} {
		_, err := s.Allocate(s.Context(), s.pool, []match.Order{o}, minutes)
		require.ErrorIs(s, err, fence.ErrInvalidArgument, "%+v", o)
	}
	_, err = s.Allocate(s.Context(), s.pool, []match.Order{s.order("m", 1)}, match.MaxHold+1)
	require.ErrorIs(s, err, fence.ErrInvalidArgument)
}
