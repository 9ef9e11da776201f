package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// An open watch keeps little of a long head. The account of the head is closed when the watch has begun.
func TestLongHeadsOfWatches(t *testing.T) {
	const watches, long, most = 12, 512 << 10, 128 << 10
	f := startFan(t, proxytest.NewServer(t), both, shortDrain)
	f.cms.Put("ns", "a", "1")
	c := f.idleConnections(1)[0]
	before := int64(0)
	for i := range 1 + watches {
		if i == 1 { // the connection has read a long head
			before = proxytest.Heap()
		}
		stream := uint32(2*i + 3)
		target := fmt.Sprintf("%s&labelSelector=a!=%d&x=%s", bubble.AnyState, i, strings.Repeat("x", long))
		err := c.Ask(stream, true, proxytest.RequestFields("GET", target, "authorization", "Bearer "+bubble.ClientToken)...)
		if err == nil {
			err = c.Flush()
		}
		for began := false; err == nil && !began; {
			var frame http2.Frame
			if frame, err = c.ReadFrame(); err == nil {
				data, ok := frame.(*http2.DataFrame)
				began = ok && data.StreamID == stream && data.Length > 0
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if each := (proxytest.Heap() - before) / watches; each > most {
		t.Errorf("%d bytes for each watch, want at most %d", each, most)
	}
}
