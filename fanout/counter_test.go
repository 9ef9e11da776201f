package fanout_test

import (
	"bytes"
	"sync/atomic"

	"github.com/watchfan/watchfan/fanout"
)

// counter is a Sink that counts frames and keeps nothing. A compressed run of initial events or of
// a replay counts as one.
type counter struct {
	silent
	frames atomic.Int64
	ended  atomic.Bool
}

var (
	chunkEnd     = []byte("}\n\r\n")
	gzipChunkEnd = []byte("\x00\x00\xff\xff\r\n")
)

func (c *counter) Write(batch [][]byte) (bool, error) {
	n := int64(0)
	for _, b := range batch {
		if bytes.HasSuffix(b, chunkEnd) || bytes.HasSuffix(b, gzipChunkEnd) { // else it is a head
			n++
		}
	}
	c.frames.Add(n)
	return false, nil
}

func (c *counter) End(fanout.Reason, bool) { c.ended.Store(true) }

func (c *counter) count() int { return int(c.frames.Load()) }

// silent is the part of a Sink that does nothing.
type silent struct{}

func (silent) Drain(func(error)) {}

func (silent) End(fanout.Reason, bool) {}
