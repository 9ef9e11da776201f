package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/remember"
)

// Sharding knows whether kube-apiserver serves shardSelector (KEP-5866, feature gate
// ShardedListAndWatch). One that does not ignores the parameter, and sends everything. It is asked
// when it first matters, and again every [DiscoveryTTL]. If the proxy may not list namespaces, it
// counts as one that does not. Its methods may be called from any goroutine.
type Sharding struct {
	upstream auth.APIServer
	calls    remember.Coalescer[struct{}, error]

	mu      sync.Mutex
	served  bool
	expires time.Time // when served is no longer believed
}

// shardingRetry is how long kube-apiserver counts as one without shardSelector after it has not
// answered the question.
const shardingRetry = 5 * time.Second

// NewSharding returns a Sharding that asks upstream. The caller calls End.
func NewSharding(upstream auth.APIServer, guard *exchange.Guard) *Sharding {
	return &Sharding{upstream: upstream, calls: remember.Coalescer[struct{}, error]{Guard: guard}}
}

// Served reports whether kube-apiserver serves shardSelector. It reports false if kube-apiserver
// does not answer before ctx ends.
func (s *Sharding) Served(ctx context.Context) bool {
	if served, known := s.lookup(); known {
		return served
	}
	s.calls.Do(ctx, struct{}{}, discoveryTimeout, s.ask)
	served, known := s.lookup()
	return known && served
}

func (s *Sharding) lookup() (served, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, time.Now().Before(s.expires)
}

// ask requests a shard of namespaces that has no object, and remembers whether the answer says that
// it is a shard. Lists of every built-in resource say so, except for lists of metadata.
func (s *Sharding) ask(ctx context.Context) error {
	served, err := s.namesShard(ctx)
	believed := DiscoveryTTL
	if err != nil {
		believed = shardingRetry
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served, s.expires = served, time.Now().Add(believed)
	return err
}

func (s *Sharding) namesShard(ctx context.Context) (bool, error) {
	query := Query("resourceVersion", "0", "fieldSelector", MatchesNothing,
		"shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')")
	resp, err := GetOwn(ctx, s.upstream, "/api/v1/namespaces", query, "application/json")
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return false, fmt.Errorf("list namespaces: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("list namespaces: %s", resp.Status)
	}
	var list struct {
		Metadata struct{ ShardInfo *struct{} }
	}
	err = json.Unmarshal(body, &list)
	return list.Metadata.ShardInfo != nil, err
}

// End ends the request under way and waits for it.
func (s *Sharding) End() { s.calls.End() }
