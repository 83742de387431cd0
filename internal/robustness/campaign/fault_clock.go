//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// readsClock is how the store's functions read its clock, and where a step is put in.
const readsClock = "local t = redis.call('TIME')"

// clockFaults step the clock of a master. The functions are given one that goes wrong, and what a step forward would
// have Redis expire is deleted; the machine's clock is everybody's and stays.
func clockFaults() []*Fault {
	return []*Fault{
		{Name: "clock-stepped",
			About: "a master's clock steps by minutes or hours, forth or back, and later back to the right time",
			hold:  seconds(0.5, 3), moves: true, inject: stepClock},
	}
}

func stepClock(ctx context.Context, r *run, v victim) error {
	by := time.Duration(1+r.rng.IntN(int(6*time.Hour/time.Minute))) * time.Minute
	if r.rng.IntN(2) == 0 {
		by = -by
	}
	node := r.cluster.Node(v.Master)
	libraries, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: redisfence.LibraryName,
		WithCode: true}).Result()
	if err != nil {
		return err
	}
	stepped := 0
	for _, l := range libraries {
		wrong := fmt.Sprintf("%s t[1] = ('%%.0f'):format(t[1] + %.0f)", readsClock, by.Seconds())
		code := strings.ReplaceAll(l.Code, readsClock, wrong)
		if code == l.Code {
			continue
		}
		stepped++
		r.damage.Hit(fmt.Sprintf("%s by %s", v.Master.Addr(), by), func(ctx context.Context) error {
			// On all masters: a replica has the step too, and may have been promoted.
			return r.cluster.Client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				return node.FunctionLoadReplace(ctx, l.Code).Err()
			})
		})
		if err := node.FunctionLoadReplace(ctx, code).Err(); err != nil {
			return err
		}
	}
	if stepped == 0 {
		return errors.New("no function of the store reads its clock as expected")
	}
	return r.expire(ctx, v, by)
}

// expire deletes what a step would end at once: the keys of the master's tiles whose time to live is shorter.
func (r *run) expire(ctx context.Context, v victim, by time.Duration) error {
	for _, id := range r.tiles {
		at, err := r.cluster.MasterOf(ctx, id)
		if err != nil {
			return err
		}
		if at != v.Master {
			continue
		}
		k := fence.KeysOf(id)
		for _, key := range []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead} {
			left, err := r.cluster.Client.PTTL(ctx, key).Result() // negative: there is none
			if err == nil && left > 0 && left <= by {
				err = r.cluster.Client.Del(ctx, key).Err()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
