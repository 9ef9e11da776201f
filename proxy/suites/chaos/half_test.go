package chaos_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"
)

// half is a half of a resource's objects, by the hash of their uids (KEP-5866).
type half int

const (
	bothHalves half = iota
	lowerHalf
	upperHalf
)

func (h half) String() string { return []string{"both halves", "lower half", "upper half"}[h] }

// selector is the shardSelector of a half, and "" of both.
func (h half) selector() string {
	bounds := []string{"0x0000000000000000", "0x8000000000000000", "0x10000000000000000"}
	if h == bothHalves {
		return ""
	}
	return fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')", bounds[h-1], bounds[h])
}

// halfOf returns the half that has an object: its hash is FNV-1a with 64 bits.
func halfOf(uid string) half {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid)) // it never fails
	if hash.Sum64()>>63 == 0 {
		return lowerHalf
	}
	return upperHalf
}

// settling is how long after a recovery watchfan may still not know every resource.
const settling = 10 * time.Second

// kept returns an error if kube-apiserver was asked for a half, and ignores the shardSelector. The
// client then tries again, as if it had been refused. It is a violation only if the request began in
// quiet times: while watchfan can't ask kube-apiserver what a resource is, or whether the client may
// read it, requests pass through.
func (s *suite) kept(f filter, passed bool, begin int64) error {
	if !passed || f.half == bothHalves || s.shards {
		return nil
	}
	s.counts.add("halves passed through")
	err := fmt.Errorf("a request for the %s passed through to kube-apiserver, which sends both", f.half)
	if quiet := s.quiet.Load(); quiet != 0 && begin > quiet+settling.Nanoseconds() {
		return &violation{err}
	}
	return err
}

// TestKept: in quiet times no request for a half may pass through.
func TestKept(t *testing.T) {
	t.Parallel()
	const since, late = 1, 2 + int64(settling)
	all := newFilter("widgets", "", "", "")
	for name, c := range map[string]struct {
		filter   filter
		passed   bool
		shards   bool
		quiet    int64
		err, bad bool
	}{
		"everything":                       {filter: all, passed: true, quiet: since},
		"from a lane":                      {filter: all.of(upperHalf), quiet: since},
		"kube-apiserver serves it":         {filter: all.of(upperHalf), passed: true, shards: true, quiet: since},
		"passed through in quiet times":    {filter: all.of(upperHalf), passed: true, quiet: since, err: true, bad: true},
		"passed through in a fault":        {filter: all.of(upperHalf), passed: true, err: true},
		"passed through just behind fault": {filter: all.of(upperHalf), passed: true, quiet: late - 1, err: true},
	} {
		s := &suite{shards: c.shards}
		s.quiet.Store(c.quiet)
		err := s.kept(c.filter, c.passed, late)
		var wrong *violation
		if (err != nil) != c.err || errors.As(err, &wrong) != c.bad {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
