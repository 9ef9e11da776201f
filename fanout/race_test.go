//go:build race

package fanout_test

func init() { raceEnabled = true }
