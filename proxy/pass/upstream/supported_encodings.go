package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// SupportedEncodings knows the representations in which kube-apiserver serves each resource.
// Built-in resources have protobuf and custom resources do not. CBOR needs a feature gate, and
// aggregated servers differ. It also knows whether kube-apiserver selects by fields that not every
// version has. It asks once for each resource and representation that discovery knows, and for each
// such field. What kube-apiserver has said holds while it does not answer, as in Discovery. Its methods may be
// called from any goroutine.
type SupportedEncodings struct {
	*Answers[resourceEncoding, support]
	upstream auth.APIServer
	asking   semaphore.Semaphore // acquired for each request
}

// encodingQueriesAtOnce bounds the requests under way; see discoveriesAtOnce.
const encodingQueriesAtOnce = 8

// NewSupportedEncodings returns a SupportedEncodings that asks upstream. The caller calls End.
func NewSupportedEncodings(upstream auth.APIServer, guard *exchange.Guard) *SupportedEncodings {
	return &SupportedEncodings{
		Answers:  NewAnswers[resourceEncoding, support](guard),
		upstream: upstream,
		asking:   semaphore.New(encodingQueriesAtOnce),
	}
}

// resourceEncoding is a resource in a representation, selected by a field; "" is none.
type resourceEncoding struct {
	gvr schema.GroupVersionResource
	request.Representation
	field string
}

// Selects reports whether kube-apiserver selects a resource by the fields of sel, which
// [FieldSelector] has returned. It reports false if kube-apiserver does not answer before ctx ends.
func (s *SupportedEncodings) Selects(ctx context.Context, info ResourceInfo, in request.Representation, sel fields.Selector) bool {
	if sel.Empty() {
		return true
	}
	for _, field := range newerFields(info, sel) {
		if s.has(ctx, resourceEncoding{info.GVR, in, field}) != supported {
			return false
		}
	}
	return true
}

// support says whether kube-apiserver serves a resource in a representation.
type support int

const (
	unknownSupport support = iota // kube-apiserver has not answered
	unsupported
	supported
)

// Choose returns the first of clauses in which kube-apiserver serves a resource. ok is false if
// there is none, and if kube-apiserver does not answer before ctx ends.
func (s *SupportedEncodings) Choose(ctx context.Context, gvr schema.GroupVersionResource, clauses []request.Clause) (c request.Clause, ok bool) {
	for _, c := range clauses {
		if c.EveryKind() {
			return c, true
		}
		switch s.has(ctx, resourceEncoding{gvr, c.Representation, ""}) {
		case supported:
			return c, true
		case unknownSupport:
			return request.Clause{}, false
		}
	}
	return request.Clause{}, false
}

func (s *SupportedEncodings) has(ctx context.Context, key resourceEncoding) support {
	known, ok := s.Get(ctx, key, discoveryTimeout, func(ctx context.Context) (support, time.Duration) {
		if answer := s.ask(ctx, key); answer != unknownSupport {
			return answer, DiscoveryTTL
		}
		if before, ok := s.known.Last(key); ok {
			return before, discoveryRetry
		}
		return unknownSupport, 0
	})
	if !ok {
		known, _ = s.known.Last(key)
	}
	return known
}

// ask requests an empty list in the representation. A field that kube-apiserver does not select by is
// an error of the request.
func (s *SupportedEncodings) ask(ctx context.Context, key resourceEncoding) support {
	if s.asking.Acquire(ctx) != nil {
		return unknownSupport
	}
	defer s.asking.Release()
	selector, refusal := MatchesNothing, http.StatusNotAcceptable
	if key.field != "" {
		selector, refusal = selector+","+key.field+"=-", http.StatusBadRequest
	}
	resp, err := GetOwn(ctx, s.upstream, CollectionPath(key.gvr), Query("resourceVersion", "0", "fieldSelector", selector), key.Accept(true))
	if err != nil {
		return unknownSupport
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the connection can then be used again
	switch {
	case resp.StatusCode == refusal:
		return unsupported
	case resp.StatusCode != http.StatusOK:
		return unknownSupport
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), key.Encoding.MediaType()):
		return unsupported
	}
	return supported
}

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
	if ReadOwn(ctx, s.upstream, "/api/v1/namespaces", query, &list) != nil {
		return false, shardingRetry
	}
	return list.Metadata.ShardInfo != nil, DiscoveryTTL
}
