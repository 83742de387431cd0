package redisplan

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// Name is Config.Name.
func (s *Store) Name() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.own.names[0], "{tilefence:plan:"), ":0}")
}

// Mutant makes the store call the functions of another library, with an error in it, and returns that library. Each
// pair of edits is a text of the sources and what it becomes.
func (s *Store) Mutant(name string, edits ...string) string {
	s.own.function = name
	text := strings.NewReplacer("tilefence_plan_", name+"_").Replace(library.Text)
	for i := 0; i < len(edits); i += 2 {
		if strings.Count(text, edits[i]) != 1 {
			panic("the sources have this not once: " + edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return text
}

// Key is one key of a shard.
func (s *Store) Key(shard int) string { return s.own.requests(shard)[0] }

// ServerTime is the processor time that the server, which is no cluster, has used so far.
func (s *Store) ServerTime(tb testing.TB) (used time.Duration) {
	info, err := s.own.client.Info(tb.Context(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, _ := strconv.ParseFloat(value, 64)
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used
}
