package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

func newDoor(t *testing.T, limits session.Limits) *Door {
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
		require.Equal(t, want, group(peer(from(remote))), remote)
	}
}

func TestConnectionsOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, session.Limits{PerAddress: 3})
		var guests []*Guest
		for i := range 3 {
			g, err := d.Knock(from(fmt.Sprintf("203.0.113.7:%d", i+1)))
			require.NoError(t, err)
			guests = append(guests, g)
		}
		_, err := d.Knock(from("203.0.113.7:4"))
		require.ErrorIs(t, err, ErrCrowded)
		_, err = d.Knock(from("203.0.113.8:4"))
		require.NoError(t, err, "another address")
		for range 10 {
			_, err = d.Knock(from("10.0.0.1:4"))
			require.NoError(t, err, "a load balancer")
		}
		time.Sleep(2 * knockWindow)
		_, err = d.Knock(from("203.0.113.7:5"))
		require.ErrorIs(t, err, ErrCrowded, "the connections are still there")
		guests[0].Leave()
		guests[0].Leave()
		_, err = d.Knock(from("203.0.113.7:6"))
		require.NoError(t, err)
		_, err = d.Knock(from("203.0.113.7:7"))
		require.ErrorIs(t, err, ErrCrowded, "who leaves twice makes one place")
	})
}

// A flood of handshakes, none of which is finished, ends after as many as the address may have connections.
func TestHandshakesOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t, session.Limits{PerAddress: 5})
		for minute := range 3 {
			passed := 0
			for range 1000 {
				if g, err := d.Knock(from("203.0.113.7:1")); err == nil {
					passed++
					g.Leave()
				}
			}
			require.Equal(t, 5, passed, "minute %d", minute)
			time.Sleep(knockWindow)
		}
	})
}

// Addresses without end take a bounded table.
func TestManyAddresses(t *testing.T) {
	d := newDoor(t, session.Limits{})
	for i := range maxKnockers * 2 {
		g, err := d.Knock(from(fmt.Sprintf("%d.%d.%d.1:1", 11+i>>16, i>>8&255, i&255)))
		require.NoError(t, err)
		g.Leave()
	}
	require.LessOrEqual(t, len(d.knocks), maxKnockers)
	require.Empty(t, d.addresses)
}

// However often sessions end, a guest is let in with an answer of the game's that came after the last end, or not.
func TestAuthorizeWhileSessionsEnd(t *testing.T) {
	d := newDoor(t, session.Limits{})
	var mu sync.Mutex
	revoked, inside := map[int]bool{}, map[int]bool{}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() { // a player
			g, err := d.Knock(from(""))
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

// A game that never comes to rest keeps a guest out, and is not asked for ever.
func TestSessionsThatEndAllTheTime(t *testing.T) {
	d := newDoor(t, session.Limits{})
	g, err := d.Knock(from(""))
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
	g, err := d.Knock(from(""))
	require.NoError(t, err)
	err = g.Authorize(func(ctx context.Context, _ session.Identity) error {
		d.Close()
		<-ctx.Done()
		return nil
	}, func() { t.Error("let in") })
	require.ErrorIs(t, err, ErrLate)
}
