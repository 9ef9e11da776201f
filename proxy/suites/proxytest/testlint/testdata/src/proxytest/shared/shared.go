// Package shared is for tests, though its files are not named so.
package shared

import (
	"testing"
	"testing/synctest"
	"time"
)

func InBubble(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		Anybody()
		nobodyElse()
	})
}

func Anybody() { time.Sleep(time.Second) } // want `time.Sleep outside a bubble`

func nobodyElse() { time.Sleep(time.Second) }
