package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/relay/session"
)

func from(remote string) *http.Request {
	return &http.Request{RemoteAddr: remote, Header: http.Header{}}
}

func newDoor(t *testing.T, limits session.Limits) *Gate {
	d, err := New(nil, limits, 100)
	require.NoError(t, err)
	return d
}

// A stranger with a whole /64 is one address; a load balancer, which is at a private one, is none.
func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"203.0.113.7:1": "203.0.113.7", "[::ffff:203.0.113.7]:1": "203.0.113.7",
		"[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64", "[2001:db8:1:2::9]:9": "2001:db8:1:2::/64",
		"127.0.0.1:1": "", "10.1.2.3:1": "", "192.168.1.1:1": "", "[fd00::1]:1": "",
		"[fe80::1%eth0]:1": "", "@": "", "": "",
	} {
		host, block := group(peer(from(remote)))
		require.Equal(t, want, host, remote)
		require.Equal(t, strings.HasPrefix(host, "2001:"), block == "2001:db8:1::/48", remote)
	}
}

func TestConnectionsOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, session.Limits{PerAddress: 3})
		var connections []*Session
		for i := range 3 {
			g, err := d.Accept(from(fmt.Sprintf("203.0.113.7:%d", i+1)))
			require.NoError(t, err)
			connections = append(connections, g)
		}
		_, err := d.Accept(from("203.0.113.7:4"))
		require.ErrorIs(t, err, ErrTooMany)
		_, err = d.Accept(from("203.0.113.8:4"))
		require.NoError(t, err, "another address")
		for range 10 {
			_, err = d.Accept(from("10.0.0.1:4"))
			require.NoError(t, err, "a load balancer")
		}
		time.Sleep(2 * countWindow)
		_, err = d.Accept(from("203.0.113.7:5"))
		require.ErrorIs(t, err, ErrTooMany, "the connections are still there")
		connections[0].Close()
		connections[0].Close()
		_, err = d.Accept(from("203.0.113.7:6"))
		require.NoError(t, err)
		_, err = d.Accept(from("203.0.113.7:7"))
		require.ErrorIs(t, err, ErrTooMany, "who leaves twice makes one place")
	})
}

// A flood of handshakes, none of which is finished, ends after as many as the address may have connections.
func TestHandshakesOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, session.Limits{PerAddress: 5})
		for minute := range 3 {
			passed := 0
			for range 1000 {
				if g, err := d.Accept(from("203.0.113.7:1")); err == nil {
					passed++
					g.Close()
				}
			}
			require.Equal(t, 5, passed, "minute %d", minute)
			time.Sleep(countWindow)
		}
	})
}

// A stranger with a wide block of addresses gets neither more handshakes for one of them, nor takes them from others.
func TestAWideBlockDoesNotClearTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, session.Limits{PerAddress: 20})
		knock := func(remote string) error {
			g, err := d.Accept(from(remote))
			if err == nil {
				g.Close()
			}
			return err
		}
		for range 20 {
			require.NoError(t, knock("203.0.113.7:1"))
		}
		passed := 0
		for i := range 70_000 { // of a /32
			if knock(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i%64, i/64)) == nil {
				passed++
			}
		}
		require.LessOrEqual(t, passed, 64*blockHandshakes*20, "each /48 has what four /64 may have")
		require.ErrorIs(t, knock("203.0.113.7:1"), ErrTooMany, "what was counted is not forgotten")
		for i := range 100 {
			require.NoError(t, knock(fmt.Sprintf("198.51.100.%d:1", i)), "others are let in")
		}
		require.Empty(t, d.addresses)
	})
}

// come is an actor's connection from an address, past its handshake.
func come(d *Gate, actor, remote string, ended *[]string) (*Session, error) {
	g, err := d.Accept(from(remote))
	if err == nil {
		r := from(remote)
		r.Header.Set("Actor", actor)
		if err = g.Identify(r); err != nil {
			g.Close()
			return g, err
		}
		err = g.Register(r, func() {}, func() { *ended = append(*ended, actor+" "+remote) })
	}
	return g, err
}

func newFullDoor(t *testing.T, limits session.Limits, places int) *Gate {
	d, err := New(func(r *http.Request) (session.Identity, error) {
		return session.Identity{Actor: r.Header.Get("Actor")}, nil
	}, limits, places)
	require.NoError(t, err)
	return d
}

// 625 players with 16 connections each fill a server of 10,000. Every other player comes in all the same, until all
// have about as much.
func TestTheHeaviestActorMakesPlace(t *testing.T) {
	var ended []string
	d := newFullDoor(t, session.Limits{Address: func(*http.Request) string { return "" }}, 10_000)
	connections := map[string]*Session{}
	for i := range 10_000 {
		who := fmt.Sprintf("hostile-%d", i%625)
		g, err := come(d, who, "", &ended)
		require.NoError(t, err)
		connections[fmt.Sprint(who, " ", i)] = g
	}
	_, err := come(d, "hostile-1", "", &ended)
	require.ErrorIs(t, err, ErrTooMany)
	_, err = come(d, "", "", &ended) // strangers of an unknown address count as one
	require.NoError(t, err)
	require.Len(t, ended, 1)
	for i := range 300 { // while few of those that were ended have gone
		_, err := come(d, fmt.Sprintf("honest-%d", i), "", &ended)
		require.NoError(t, err)
	}
	require.Len(t, ended, 301)
	for _, who := range ended {
		require.Contains(t, who, "hostile")
	}
	name, most := d.places.actors.Heaviest()
	require.Len(t, most, 16, name)
	require.Equal(t, 10_000, d.places.taken)
	require.Equal(t, 301, d.places.parting)
	for range 325 {
		_, err = come(d, "greedy", "", &ended)
		if err != nil {
			break
		}
	}
	require.ErrorIs(t, err, ErrFull, "an actor gets no more than others have by this")
	require.Equal(t, 15, d.places.actors.Held("actor greedy"))
	for i := range 1000 {
		if _, err = come(d, fmt.Sprintf("late-%d", i), "", &ended); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, ErrFull, "no more than a sixteenth is on its way out")
	for _, g := range connections {
		g.Close()
		g.Close()
	}
	require.Zero(t, d.places.parting)
	require.Zero(t, d.accepting)
}

// An actor is not refused for another that holds as much, and none loses its only connection to one.
func TestAFullServerIsFairEnough(t *testing.T) {
	var ended []string
	d := newFullDoor(t, session.Limits{Address: func(*http.Request) string { return "" }}, 4)
	for _, who := range []string{"ann", "ann", "bob", "cy"} {
		_, err := come(d, who, "", &ended)
		require.NoError(t, err)
	}
	_, err := come(d, "bob", "", &ended)
	require.ErrorIs(t, err, ErrFull, "bob would have as much as ann has now")
	dan, err := come(d, "dan", "", &ended)
	require.NoError(t, err)
	require.Equal(t, []string{"ann "}, ended)
	_, err = come(d, "eve", "", &ended)
	require.ErrorIs(t, err, ErrFull, "everyone has one")
	dan.Close()
	_, err = come(d, "eve", "", &ended)
	require.NoError(t, err)
}

// Connections without end from one address do not keep other addresses out.
func TestTheHeaviestAddressMakesPlace(t *testing.T) {
	var ended []string
	d := newFullDoor(t, session.Limits{PerAddress: 2000}, 2000)
	for i := range 2000 {
		_, err := come(d, fmt.Sprintf("connection-%d", i), "203.0.113.7:1", &ended)
		require.NoError(t, err)
	}
	for i := range 100 {
		_, err := come(d, fmt.Sprintf("honest-%d", i), fmt.Sprintf("198.51.100.%d:1", i), &ended)
		require.NoError(t, err)
	}
	require.Len(t, ended, 100)
	require.NotContains(t, fmt.Sprint(ended), "honest")
}

// A handshake under way takes no place, and there are no more of them than places.
func TestHandshakesTakeNoPlace(t *testing.T) {
	var ended []string
	d := newFullDoor(t, session.Limits{}, 3)
	var waiting []*Session
	for range 3 {
		g, err := d.Accept(from(""))
		require.NoError(t, err)
		waiting = append(waiting, g)
	}
	_, err := d.Accept(from(""))
	require.ErrorIs(t, err, ErrFull)
	waiting[0].Close()
	_, err = come(d, "ann", "", &ended)
	require.NoError(t, err)
	require.Equal(t, 2, d.accepting)
}

// However often sessions end, a connection is let in with an answer of the game's that came after the last end, or not.
func TestAuthorizeWhileSessionsEnd(t *testing.T) {
	d := newDoor(t, session.Limits{})
	var mu sync.Mutex
	revoked, inside := map[int]bool{}, map[int]bool{}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() { // a player
			g, err := d.Accept(from(""))
			if err != nil {
				t.Error(err)
				return
			}
			_ = g.Authorize(func(context.Context, session.Identity) error {
				mu.Lock()
				defer mu.Unlock()
				if revoked[i] {
					return errors.New("not any more")
				}
				return nil
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				inside[i] = true
			})
		})
		all.Go(func() { // the game: revoke, then end
			mu.Lock()
			revoked[i] = true
			mu.Unlock()
			d.Ending()
			mu.Lock()
			delete(inside, i)
			mu.Unlock()
		})
	}
	all.Wait()
	require.Empty(t, inside)
}

// A game that never comes to rest keeps a connection out, and is not asked for ever.
func TestSessionsThatEndAllTheTime(t *testing.T) {
	d := newDoor(t, session.Limits{})
	g, err := d.Accept(from(""))
	require.NoError(t, err)
	asked := 0
	err = g.Authorize(func(context.Context, session.Identity) error {
		asked++
		d.Ending()
		return nil
	}, func() { t.Error("let in") })
	require.ErrorIs(t, err, ErrEnded)
	require.Equal(t, commitTries+1, asked)
}

func TestCloseEndsTheGamesFunctions(t *testing.T) {
	d := newDoor(t, session.Limits{Timeout: time.Hour})
	g, err := d.Accept(from(""))
	require.NoError(t, err)
	err = g.Authorize(func(ctx context.Context, _ session.Identity) error {
		d.Close()
		<-ctx.Done()
		return nil
	}, func() { t.Error("let in") })
	require.ErrorIs(t, err, ErrTimeout)
}
