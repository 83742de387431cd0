//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// unbroken stands for all faults of the run that has Config.Unbroken: they follow one another in one system, whose
// travellers cross without a pause. It has no watchers, gateways and players, and what is recorded of it is how it
// ended: the checks of a run of one fault would take hours.
var unbroken = &Fault{Name: "unbroken", About: "one fault after another in one system", moves: true, frozen: true}

// keptUnbroken are the records of an unbroken run.
var keptUnbroken = []history.Kind{history.Life, history.Fault, history.Final, history.Books}

// coordinationLost is for tiles with a journal: others promise nothing then.
var coordinationLost = &Fault{Name: "coordination-lost",
	About: "SIGKILL of every node of the coordination store at once, which come back empty; in most cases of all " +
		"workers too, in half of all while journals lag, since the durable store is paused",
	hold: seconds(0.5, 2), failover: true, loses: true, inject: loseCoordination}

func loseCoordination(_ context.Context, r *run, _ victim) error {
	var errs []error
	lags := r.rng.IntN(2) == 0 // what every replica has confirmed is then ahead of the journals
	if lags {
		errs = append(errs, r.pause(r.dynamo))
		time.Sleep(6*tick + time.Duration(r.rng.Int64N(int64(10*tick))))
	}
	r.recorder.Fault(history.FaultInfo{Name: "every copy is lost", Failover: true, Loses: true})
	for _, p := range r.cluster.Processes() {
		r.damage.Hit(p.Name(), p.Restart)
		errs = append(errs, p.Signal(os.Kill))
	}
	if lags || r.rng.IntN(2) == 0 {
		for _, w := range r.workers {
			errs = append(errs, r.killWorker(w))
		}
	}
	return errors.Join(errs...)
}

// Census is the verdict of an unbroken run.
type Census struct {
	check.Census
	UnderWay int            // at the end: what should have arrived is stuck
	Faults   map[string]int // how often each came
}

func (c *Census) String() string {
	return fmt.Sprintf("%d travellers, %d crossings, %d faults: %d lost, %d doubled, %d stuck, coins %+d", c.Born,
		c.Crossings, c.faults(), len(c.Lost), len(c.Doubled), c.UnderWay, c.Coins)
}

func (c *Census) faults() (n int) {
	for _, times := range c.Faults {
		n += times
	}
	return n
}

// bearable are the faults of an unbroken run.
func (c *Config) bearable() []*Fault {
	all := slices.Clone(c.Faults)
	if c.Durable && !slices.Contains(all, coordinationLost) {
		all = append(all, coordinationLost)
	}
	return slices.DeleteFunc(all, func(f *Fault) bool {
		return f.alone || f.appendOnly || f.staged || f.single || f.loses && !c.Durable
	})
}

// travellers is how many begin in each tile.
func (r *run) travellers() int {
	if r.Fault != unbroken {
		return game.Few
	}
	return max(game.Few+1, (r.cfg.Travellers+tileCount-1)/tileCount)
}

// breakUnbroken breaks and mends the system until its time is over. Every fault comes once before any comes again.
func (r *run) breakUnbroken(ctx context.Context) error {
	r.Census = &Census{Faults: map[string]int{}}
	all := slices.DeleteFunc(r.cfg.bearable(), func(f *Fault) bool { return f.parts && r.network == nil })
	if len(all) == 0 {
		return errors.New("an unbroken run bears none of the faults")
	}
	var left []*Fault
	for until := time.Now().Add(r.cfg.Unbroken); time.Now().Before(until) && ctx.Err() == nil; {
		if len(left) == 0 {
			left = slices.Clone(all)
		}
		i := r.rng.IntN(len(left))
		f := left[i]
		left = slices.Delete(left, i, i+1)
		if err := r.breakAndMend(ctx, f); err != nil {
			return err
		}
		r.Census.Faults[f.Name]++
	}
	r.Target = fmt.Sprintf("%d faults", r.Census.faults())
	return context.Cause(ctx)
}

// count takes the census.
func (r *run) count(h *history.History) {
	r.Census.Census, _ = check.Count(h)
	r.Answers = r.traffic.answers()
	r.Violations = slices.Concat(check.TravellersInOnePlace(h), check.MoneyConserved(h))
}

// unbrokenTable is the row of the unbroken run.
func (s *Summary) unbrokenTable(b *strings.Builder) {
	i := slices.IndexFunc(s.Results, func(r Result) bool { return r.Census != nil })
	if i < 0 {
		return
	}
	c := s.Results[i].Census
	classes := "all but write-behind"
	if s.Config.Durable {
		classes = "write-behind"
	}
	b.WriteString("## Without a break\n\n" +
		"One run, in which one fault follows another while travellers cross from tile to tile. The census is of the " +
		"committed states of all tiles at its end: who is in none, in two, or under way.\n\n" +
		"| length | classes of tiles | travellers | faults | crossings | lost | doubled | stuck | coins |\n" +
		"|---|---|---:|---:|---:|---:|---:|---:|---:|\n")
	fmt.Fprintf(b, "| %v | %s | %d | %d | %d | %d | %d | %d | %+d |\n\n", s.Config.Unbroken, classes, c.Born,
		c.faults(), c.Crossings, len(c.Lost), len(c.Doubled), c.UnderWay, c.Coins)
	var names []string
	for _, f := range s.Config.bearable() {
		names = append(names, fmt.Sprintf("%s %d", f.Name, c.Faults[f.Name]))
	}
	fmt.Fprintf(b, "Faults: %s.\n\n", strings.Join(names, ", "))
}
