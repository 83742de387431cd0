package redisplan

import "strings"

// Name is Config.Name.
func (s *Store) Name() string {
	return strings.TrimSuffix(strings.TrimPrefix(s.names[0], "{tilefence:plan:"), ":0}")
}

// Mutant makes the store call the functions of another library, with an error in it, and returns that library. Each
// pair of edits is a text of the sources and what it becomes.
func (s *Store) Mutant(name string, edits ...string) string {
	s.function = name
	text := strings.NewReplacer("tilefence_plan_", name+"_").Replace(library.text)
	for i := 0; i < len(edits); i += 2 {
		if strings.Count(text, edits[i]) != 1 {
			panic("the sources have this not once: " + edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	return text
}

// Key is one key of a shard.
func (s *Store) Key(shard int) string { return s.requests(shard)[0] }
