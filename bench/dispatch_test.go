//go:build linux

package main

import (
	"testing"
	"time"
)

// TestDispatchChoices: one subscription gets every event, however the others divide the objects.
func TestDispatchChoices(t *testing.T) {
	for name, choice := range map[string]dispatchChoice{"node": dispatchNode, "shard": dispatchShard} {
		for _, n := range []int{1, 2, 7, 50} {
			m, err := dispatchAmong(t.Context(), n, choice, time.Millisecond)
			if rate, ok := find(m, "events/s"); err != nil || !ok || rate <= 0 {
				t.Errorf("%d by %s: got %v, %v", n, name, m, err)
			}
		}
	}
}
