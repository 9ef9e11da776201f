package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// kube-apiserver is asked once in a while, and again soon after it has not answered.
func TestSharding(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       int
		err        error
		want       bool
		again      time.Duration
	}{
		{"on", `{"metadata":{"shardInfo":{"selector":"x"}}}`, 200, nil, true, DiscoveryTTL},
		{"off", `{"metadata":{"resourceVersion":"7"},"items":[]}`, 200, nil, false, DiscoveryTTL},
		{"forbidden", `{"metadata":{}}`, 403, nil, false, shardingRetry},
		{"no answer", "", 0, errors.New("no"), false, shardingRetry},
		{"garbage", `{"metadata":{"shardInfo":`, 200, nil, false, shardingRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := answering(c.code, c.body, c.err)
				s := NewSharding(up, proxytest.Guard())
				defer s.End()
				for asked := 1; asked < 4; asked++ {
					for range 2 {
						if got := s.Served(t.Context()); got != c.want || up.Count() != asked {
							t.Errorf("got %v after %d requests, want %v after %d", got, up.Count(), c.want, asked)
						}
					}
					time.Sleep(c.again)
				}
			})
		})
	}
}
