package upstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Sharding knows whether kube-apiserver serves shardSelector (KEP-5866, feature gate
// ShardedListAndWatch). One that does not ignores the parameter, and sends everything. It is asked
// when it first matters, and again every [DiscoveryTTL]. If the proxy may not list namespaces, it
// counts as one that does not. Its methods may be called from any goroutine.
type Sharding struct {
	*Answers[struct{}, bool]
	upstream auth.APIServer
}

// shardingRetry is how long kube-apiserver counts as one without shardSelector after it has not
// answered the question.
const shardingRetry = 5 * time.Second

// NewSharding returns a Sharding that asks upstream. The caller calls End.
func NewSharding(upstream auth.APIServer, guard *exchange.Guard) *Sharding {
	return &Sharding{NewAnswers[struct{}, bool](guard), upstream}
}

// Served reports whether kube-apiserver serves shardSelector. It reports false if kube-apiserver
// does not answer before ctx ends.
func (s *Sharding) Served(ctx context.Context) bool {
	served, _ := s.Get(ctx, struct{}{}, discoveryTimeout, s.ask)
	return served
}

// ask requests a shard of namespaces that has no object. The answer says that it is a shard. Lists of
// every built-in resource say so, except for lists of metadata.
func (s *Sharding) ask(ctx context.Context) (served bool, believed time.Duration) {
	query := Query("resourceVersion", "0", "fieldSelector", MatchesNothing,
		"shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')")
	var list struct {
		Metadata struct{ ShardInfo *struct{} }
	}
	body, err := ReadOwn(ctx, s.upstream, "/api/v1/namespaces", query)
	if err != nil || json.Unmarshal(body, &list) != nil {
		return false, shardingRetry
	}
	return list.Metadata.ShardInfo != nil, DiscoveryTTL
}
