package tilefence

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// Backends names the back ends of a deployment. Every process of it is given the same ones; each constructor
// says which it needs, and refuses a nil one with a *fence.ArgumentError that names it.
//
// A Backends value opens and closes nothing: the caller that opened the clients closes them, after Run has returned.
type Backends struct {
	// Authority mints epochs. pgfence in production, sqlitefence or memfence's Authority embedded.
	Authority fence.Authority
	// Store commits under them. redisfence, or memfence.
	Store fence.Store
	// Log reads what was committed. redisstream, or memstream, over the same servers as Store.
	Log stream.Log
	// Fanout carries frames to relays and wake hints to bridges. redisfanout, natsfanout, tiered over both, or
	// memfanout.
	Fanout Fanout
	// Durable keeps checkpoints and journals. dynamocheckpoint, sqlitecheckpoint or memcheckpoint.
	Durable checkpoint.Backend
	// Ledger keeps accounts and actions. dynamoledger or sqliteledger.
	Ledger admission.Store
	// Workers lets bridges share the tiles with each other, and checkpoint servers likewise, and keeps two tile servers
	// from one address. By a list there a checkpoint server also has tile servers that spawn begin a tile that has no
	// owner and entities under way. redisshare between processes, share.NewMemory within one.
	Workers share.Members
	// Matches keeps the tickets and seats of matchmaking. redismatch, or memmatch.
	Matches match.Backend
	// Seats names the pool of seats in Matches that the process's tile servers offer in, and its match servers take
	// from: 1 to 64 of letters, digits and "-_.:". A region or a mode has a pool of its own. Default "seats".
	Seats string
	// Plans keeps requests for slow decisions. redisplan, or memplan.
	Plans plan.Store
	// Members lets tile servers and gateways know of each other: who is alive, and who owns what. A
	// gossip.Config between processes, a *route.Group within one.
	Members route.Joiner

	// Directory says where players are, and which gateways and relays have their sessions; see package directory.
	// redisdirectory between processes, directory.NewMemory within one. Nil: that is not known.
	Directory directory.Store

	// Tiles says which tiles exist: an error refuses the tile. Tile servers run no others, gateways refuse intents for
	// them before anything is spent, and relays subscriptions. Host.Allow, Gateway.Allow and a relay's authorize refuse
	// more. It may be called from many goroutines. Default: tilehost.Cells, the cells of H3. A game that numbers its
	// tiles otherwise sets its own.
	Tiles func(fence.TileID) error

	// Checked are further back ends of the game. Tile servers and gateways report in their Health what is wrong with
	// their servers, as tile servers do of the others.
	Checked []fence.Checker

	// Keys prove tile servers and gateways to each other, see tilehttp.Keys. Without them every process that reaches a
	// tile server's port, or is a member, is believed; the servers say so when they start. What Members carries is
	// guarded by its own: gossip.Config.SecretKeys.
	Keys tilehttp.Keys

	// TLS is for the connections to tile servers, at both ends: tile servers serve with it, and tile servers and
	// gateways call with it. It needs Certificates and RootCAs; with ClientCAs and tls.RequireAndVerifyClientCert only
	// processes with a certificate of yours reach a tile server. A certificate is of the host in the contact. Nil: not
	// encrypted.
	TLS *tls.Config
}

// Fanout is the delivery plane: frames from bridges to relays, wake hints from tile servers to bridges.
type Fanout interface {
	fanout.Publisher
	fanout.Subscriber
	fanout.HintPublisher
	fanout.HintSubscriber
}

// backend is one field of Backends.
type backend struct {
	name    string
	missing bool
}

func (b *Backends) authority() backend { return backend{"Authority", b.Authority == nil} }
func (b *Backends) store() backend     { return backend{"Store", b.Store == nil} }
func (b *Backends) log() backend       { return backend{"Log", b.Log == nil} }
func (b *Backends) fanout() backend    { return backend{"Fanout", b.Fanout == nil} }
func (b *Backends) durable() backend   { return backend{"Durable", b.Durable == nil} }
func (b *Backends) ledger() backend    { return backend{"Ledger", b.Ledger == nil} }
func (b *Backends) workers() backend   { return backend{"Workers", b.Workers == nil} }
func (b *Backends) members() backend   { return backend{"Members", b.Members == nil} }
func (b *Backends) matches() backend   { return backend{"Matches", b.Matches == nil} }
func (b *Backends) plans() backend     { return backend{"Plans", b.Plans == nil} }

// pool is the pool of seats.
func (b *Backends) pool() string { return cmp.Or(b.Seats, "seats") }

// exists judges a tile by Tiles, and then by more, which may be nil.
func (b *Backends) exists(more func(fence.TileID) error) func(fence.TileID) error {
	tiles := b.Tiles
	if tiles == nil {
		tiles = func(id fence.TileID) error {
			if err := tilehost.Cells(id); err != nil {
				return fmt.Errorf("%w; to number tiles yourself, set Backends.Tiles to what accepts them", err)
			}
			return nil
		}
	}
	return func(id fence.TileID) error {
		if err := tiles(id); err != nil || more == nil {
			return err
		}
		return more(id)
	}
}

// checked are the further back ends of the game that keep a world.
func checked(b *Backends, others ...any) []any {
	for _, c := range b.Checked {
		others = append(others, c)
	}
	return others
}

// statsOf are the Stats of a membership; nil if it has none. It links nothing that memberships are made of.
func statsOf(m route.Membership) any {
	method := reflect.ValueOf(m).MethodByName("Stats")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return nil
	}
	return method.Call(nil)[0].Interface()
}

// warnOpen says that a server without keys believes every process.
func warnOpen(log *slog.Logger, server string) {
	log.Warn(server + " has no keys: every process that reaches a tile server, or answers as one, is believed; " +
		"set Backends.Keys")
}

// require names the back ends among those needed that are nil, in their order: nil, or a *fence.ArgumentError.
func require(server string, needed ...backend) error {
	var all, missing []string
	for _, n := range needed {
		all = append(all, n.name)
		if n.missing {
			missing = append(missing, n.name)
		}
	}
	if missing == nil {
		return nil
	}
	return argument("Backends", "nil "+strings.Join(missing, ", "),
		strings.Join(all, ", ")+", which a "+server+" needs")
}
