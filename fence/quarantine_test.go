package fence

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestQuarantineIsAContact: what a quarantine says survives the authority, which takes contacts of 255 visible bytes.
func TestQuarantineIsAContact(t *testing.T) {
	for name, q := range map[string]Quarantine{
		"an event":   {At: EventRef{345, 3}, By: "10.0.0.8:7000", Reason: `Apply: index out of range [3] "x" <y>`},
		"a batch":    {At: EventRef{345, 0}, By: "10.0.0.8:7000", Reason: "Apply"},
		"a snapshot": {By: "10.0.0.8:7000", Reason: "Restore: not a version"},
		"lifted":     {At: EventRef{9, 1}, Skip: []EventRef{{7, 2}, {9, 1}}, Lifted: true, By: "tilectl", Reason: "x"},
	} {
		contact, err := q.Contact()
		require.NoError(t, err, name)
		require.True(t, IsName(contact, MaxContact), "%s: %s", name, contact)
		got, ok := ParseQuarantine(contact)
		require.True(t, ok, name)
		assert.Equal(t, q, got, name)
	}
	long := Quarantine{At: EventRef{345, 3}, By: "10.0.0.8:7000", Reason: strings.Repeat("\nä<\u200b", 300)}
	contact, err := long.Contact()
	require.NoError(t, err)
	require.True(t, IsName(contact, MaxContact), contact)
	got, ok := ParseQuarantine(contact)
	require.True(t, ok)
	assert.Equal(t, long.At, got.At)
	assert.Contains(t, got.Reason, "ä<")

	for range 60 {
		long.Skip = append(long.Skip, EventRef{MaxNumber, 1})
	}
	_, err = long.Contact()
	require.ErrorIs(t, err, ErrInvalidArgument)
	for _, other := range []string{"", "10.0.0.8:7000", "{}", `{"quarantine":"else","by":"x"}`,
		`{"quarantine":"closed"`,
		`{"quarantine":"closed","at":"3/0"}`, `{"quarantine":"closed","at":"x"}`} {
		_, ok := ParseQuarantine(other)
		assert.False(t, ok, other)
	}
}
