//go:build linux

// Package headline plays the battle of examples/battle at several sizes on real servers, every actor a process of its
// own, and measures what the first sentence of the README promises: that 10,000 players are served as 100 are. It holds
// the deployment, the arithmetic and the charts; command benchreport writes the page.
//
// Only Linux is supported: the processor time and memory of each process are read from /proc.
package headline

import (
	"fmt"
	"io"
	"time"

	"github.com/tilefence/tilefence/internal/figures"
)

// Config says what is played.
type Config struct {
	Sizes []Size    // default: DefaultSizes
	Seed  uint64    // of the bots' decisions
	Log   io.Writer // progress
}

// What is the same for all sizes.
const (
	tiles       = 37 // a disk of three rings
	hosts       = 2  // tile hosts, each the warm follower of the others
	verifyEvery = 50 // one player in so many is an ordinary bot, the others a swarm
	drawEvery   = 240
	tick        = 500 * time.Millisecond
	warmUp      = 15 * time.Second // after the last bot has joined
)

// Size is one battle.
type Size struct {
	Players int
	Window  time.Duration // that is measured
}

// String describes a battle in a table.
func (s Size) String() string {
	text := fmt.Sprint(s.Players)
	if n := len(text); n > 3 {
		text = text[:n-3] + "," + text[n-3:]
	}
	return text + " players"
}

// DefaultSizes take some seven minutes, with their beginnings and ends.
func DefaultSizes() []Size {
	return []Size{{Players: 100, Window: 30 * time.Second}, {Players: 1000, Window: 30 * time.Second},
		{Players: 5000, Window: 30 * time.Second}, {Players: 10_000, Window: time.Minute}}
}

// Result is what a headline run measured.
type Result struct {
	Machine     Machine `json:"machine"`
	Tiles       int     `json:"tiles"`
	Hosts       int     `json:"tile_hosts"`
	VerifyEvery int     `json:"verify_every"`
	DrawEvery   int     `json:"draw_every_ticks"`
	Seed        uint64  `json:"seed"`
	TickMs      float64 `json:"tick_ms"`
	WarmUp      float64 `json:"warm_up_seconds"` // not measured
	Conditions  string  `json:"conditions"`      // under which the actors ran, in words
	Runs        []Run   `json:"runs"`
}

// Machine is where and when something was measured.
type Machine struct {
	Date      string `json:"date"`
	Go        string `json:"go"`
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
}

// Run is one battle.
type Run struct {
	Players  int     `json:"players"`
	Seconds  float64 `json:"seconds"`
	Joining  float64 `json:"joining_seconds"` // from the start of the swarms until all bots are subscribed
	Latency  Latency `json:"latency"`
	Traffic  Traffic `json:"traffic"`
	Ticks    Ticks   `json:"ticks"`
	Orders   Orders  `json:"orders"`
	Actors   []Usage `json:"actors"`
	Busy     float64 `json:"busy_cores"` // of the machine, everything that runs on it included
	Slices   []Slice `json:"slices"`
	Verified int     `json:"verified_clients"` // compared with their owners in full, the others by position
	Verdict  Outcome `json:"outcome"`
	Overhead float64 `json:"other_cores"` // of Busy, by processes that are no part of the battle
}

// Latency are the distributions of a run.
type Latency struct {
	CommitToClient figures.Latency `json:"commit_to_client"` // from forming the batch to the client's having checked it
	Commit         figures.Latency `json:"commit"`
	Lateness       figures.Latency `json:"tick_lateness"` // of the beginning of ticks
	Order          figures.Latency `json:"order"`         // from sending an order to its outcome, a tick included
	Refusal        figures.Latency `json:"refusal"`       // of an order by an overloaded gateway or tile
	Bars           []figures.Bar   `json:"commit_to_client_bars"`
}

// Traffic is what clients were sent. Each counter is of the measured window.
type Traffic struct {
	BytesPerClientTick float64 `json:"bytes_per_client_tick"` // payload of messages, snapshots included
	WirePerClientTick  float64 `json:"wire_bytes_per_client_tick"`
	Frames             float64 `json:"frames"`
	Dropped            float64 `json:"slow_client_drops"`
	Stale              float64 `json:"stale_drops"`
	Gaps               float64 `json:"client_gaps"`
	Resyncs            float64 `json:"client_resyncs"`
	Syncs              float64 `json:"client_syncs"`
	Corrupt            float64 `json:"client_corrupt"`
}

// Ticks are of all tiles, in the measured window.
type Ticks struct {
	Played  float64 `json:"played"`
	Missed  float64 `json:"missed"`
	Commits float64 `json:"commits"`
	Events  float64 `json:"events"`
}

// Orders are what the players did in the measured window.
type Orders struct {
	Moves   float64            `json:"moves"`
	Failed  float64            `json:"moves_failed"`
	Refused float64            `json:"moves_refused"` // by an overloaded gateway or tile
	Cards   float64            `json:"cards"`
	Ledger  map[string]float64 `json:"ledger"` // cards by outcome
}

// Usage is what the processes of one kind took.
type Usage struct {
	Name      string  `json:"name"`
	Processes int     `json:"processes"`
	Cores     float64 `json:"cores"`
	MiB       float64 `json:"mib"` // resident at the end of the window
}

// Slice is a part of the measured window.
type Slice struct {
	At    float64 `json:"at_seconds"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Cores float64 `json:"cores"`
}

// Outcome is how a battle ended.
type Outcome struct {
	Converged bool     `json:"converged"`
	Why       string   `json:"why_not,omitempty"`
	Unclean   []string `json:"unclean_exits,omitempty"` // processes that did not drain and end with status 0
}

// Swarm is the name of the bots among the actors; all others are the servers' share.
const Swarm = "bots"

// Servers is what everything but the bots took of the processors.
func (r *Run) Servers() (cores float64) {
	for _, u := range r.Actors {
		if u.Name != Swarm {
			cores += u.Cores
		}
	}
	return cores
}
