package chart

import (
	"encoding/json"
	"strings"
)

// mark comes before the JSON of a series in the log of a benchmark.
const mark = ": series {"

// Line is what a benchmark logs (testing.B.Log) to have the series drawn; Parse finds it there.
func (s *Series) Line() string {
	text, err := json.Marshal(s)
	if err != nil {
		return "unreadable series " + s.Name + ": " + err.Error() // a figure that is not a number
	}
	return "series " + string(text)
}

// Parse finds the series in the output of go test -bench. Of several with the same name the last counts.
func Parse(out string) (map[string]Series, error) {
	all := map[string]Series{}
	for line := range strings.Lines(out) {
		_, text, ok := strings.Cut(line, mark)
		if !ok {
			continue
		}
		var s Series
		if err := json.Unmarshal([]byte("{"+text), &s); err != nil {
			return nil, err
		}
		all[s.Name] = s
	}
	return all, nil
}
