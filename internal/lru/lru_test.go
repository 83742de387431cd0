package lru_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/internal/lru"
)

func TestTheLeastRecentlyUsedGoes(t *testing.T) {
	t.Parallel()
	m := lru.New[string, int](2)
	has := func(k string, want int) {
		t.Helper()
		got, ok := m.Get(k)
		assert.True(t, ok, k)
		assert.Equal(t, want, got)
	}
	gone := func(k string) {
		t.Helper()
		_, ok := m.Get(k)
		assert.False(t, ok, k)
	}
	m.Put("a", 1)
	m.Put("b", 2)
	has("a", 1) // and a is the younger one now
	m.Put("c", 3)
	gone("b")
	m.Put("a", 4) // a use, too
	m.Put("d", 5)
	gone("c")
	has("a", 4)
	m.Remove("a")
	m.Remove("a")
	gone("a")
	assert.Equal(t, 1, m.Len())
	m.Put("e", 6)
	has("d", 5)
	has("e", 6)
}
