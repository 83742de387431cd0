package setting_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
)

type config struct {
	Wait, Longest time.Duration
	Batch         int
}

func check(c *config) (config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Duration("Wait", &out.Wait, time.Second)
	s.From(out.Wait, "Longest", &out.Longest, 10*time.Second)
	s.Number("Batch", &out.Batch, 8)
	return out, s.Err
}

func TestZeroFieldsGetTheirDefaults(t *testing.T) {
	for _, c := range []*config{nil, {}} {
		got, err := check(c)
		require.NoError(t, err)
		require.Equal(t, config{time.Second, 10 * time.Second, 8}, got)
	}
	got, err := check(&config{Wait: time.Minute, Batch: 1})
	require.NoError(t, err)
	require.Equal(t, config{time.Minute, time.Minute, 1}, got, "a default does not contradict what was set")
}

func TestTheFirstBadFieldIsNamed(t *testing.T) {
	for field, c := range map[string]config{
		"Wait":    {Wait: -1, Batch: -1},
		"Longest": {Wait: time.Minute, Longest: time.Second},
		"Batch":   {Batch: -1},
	} {
		_, err := check(&c)
		var bad *fence.ArgumentError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
}
