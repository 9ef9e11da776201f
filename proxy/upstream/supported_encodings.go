package upstream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/remember"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/semaphore"
)

// SupportedEncodings knows the representations in which kube-apiserver serves each resource.
// Built-in resources have protobuf and custom resources do not. CBOR needs a feature gate, and
// aggregated servers differ. It also knows whether kube-apiserver selects by fields that not every
// version has. It asks once for each resource and representation that discovery knows, and for each
// such field. Its methods may be called from any goroutine.
type SupportedEncodings struct {
	upstream auth.APIServer
	calls    remember.Coalescer[resourceEncoding, error]
	asking   semaphore.Semaphore // acquired for each request

	mu    sync.Mutex
	known map[resourceEncoding]encodingSupport
}

const (
	// encodingQueriesAtOnce bounds the requests under way; see discoveriesAtOnce.
	encodingQueriesAtOnce = 8
	// maxSupportedEncodings bounds the answers that are remembered. A cluster has a few hundred
	// resources, each in a few representations.
	maxSupportedEncodings = 4096
)

func NewSupportedEncodings(upstream auth.APIServer, guard *exchange.Guard) *SupportedEncodings {
	return &SupportedEncodings{
		upstream: upstream,
		calls:    remember.Coalescer[resourceEncoding, error]{Guard: guard},
		asking:   semaphore.New(encodingQueriesAtOnce),
		known:    make(map[resourceEncoding]encodingSupport),
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
		if supported, err := s.has(ctx, resourceEncoding{info.GVR, in, field}); err != nil || !supported {
			return false
		}
	}
	return true
}

// encodingSupport says whether kube-apiserver serves a resource in a representation.
type encodingSupport struct {
	supported bool
	expires   time.Time
}

// Choose returns the first of clauses in which kube-apiserver serves a resource. ok is false if
// there is none, and if kube-apiserver does not answer before ctx ends.
func (s *SupportedEncodings) Choose(ctx context.Context, gvr schema.GroupVersionResource, clauses []request.Clause) (c request.Clause, ok bool) {
	for _, c := range clauses {
		if c.EveryKind() {
			return c, true
		}
		supported, err := s.has(ctx, resourceEncoding{gvr, c.Representation, ""})
		if err != nil {
			return request.Clause{}, false
		}
		if supported {
			return c, true
		}
	}
	return request.Clause{}, false
}

func (s *SupportedEncodings) has(ctx context.Context, key resourceEncoding) (bool, error) {
	if k, ok := s.lookup(key); ok {
		return k.supported, nil
	}
	err, ok := s.calls.Do(ctx, key, discoveryTimeout, func(ctx context.Context) error { return s.ask(ctx, key) })
	if !ok {
		return false, cmp.Or(ctx.Err(), exchange.ErrPanicked)
	}
	k, _ := s.lookup(key)
	return k.supported, err
}

func (s *SupportedEncodings) lookup(key resourceEncoding) (encodingSupport, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.known[key]
	return k, ok && time.Now().Before(k.expires)
}

// ask requests an empty list in the representation, and remembers whether there is one. A field that
// kube-apiserver does not select by is an error of the request.
func (s *SupportedEncodings) ask(ctx context.Context, key resourceEncoding) error {
	if err := s.asking.Acquire(ctx); err != nil {
		return err
	}
	defer s.asking.Release()
	selector, refusal := MatchesNothing, http.StatusNotAcceptable
	if key.field != "" {
		selector, refusal = selector+","+key.field+"=-", http.StatusBadRequest
	}
	resp, err := GetOwn(ctx, s.upstream, CollectionPath(key.gvr), Query("resourceVersion", "0", "fieldSelector", selector), key.Accept(true))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the connection can then be used again
	supported := resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), key.MediaType())
	if !supported && resp.StatusCode != http.StatusOK && resp.StatusCode != refusal {
		return fmt.Errorf("list %s in %s: %s", key.gvr, key.Representation, resp.Status)
	}
	s.remember(key, supported)
	return nil
}

func (s *SupportedEncodings) remember(key resourceEncoding, supported bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSupportedEncodings {
		maps.DeleteFunc(s.known, func(_ resourceEncoding, k encodingSupport) bool { return !now.Before(k.expires) })
	}
	if len(s.known) >= maxSupportedEncodings {
		clear(s.known) // they will be asked for again
	}
	s.known[key] = encodingSupport{supported: supported, expires: now.Add(DiscoveryTTL)}
}

// End ends the requests under way and waits for them.
func (s *SupportedEncodings) End() { s.calls.End() }
