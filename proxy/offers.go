package proxy

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

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// offers knows which resources kube-apiserver offers in which representations: protobuf of its own, not of custom resources, CBOR
// where a feature gate is on, and either of those of aggregated servers as they like. It asks once for each resource and
// representation that exists, as discovery has it. Its methods may be called from any goroutine.
type offers struct {
	upstream doer
	calls    coalescer[offerKey, error]
	asking   chan struct{} // holds one for each request under way; never closed

	mu    sync.Mutex
	known map[offerKey]offer
}

const (
	// offersAtOnce bounds the requests under way, as discoveriesAtOnce does.
	offersAtOnce = 8
	// mostOffers bounds what is remembered. A cluster has a few hundred resources, each in a few representations.
	mostOffers = 4096
)

func newOffers(upstream doer) *offers {
	return &offers{upstream: upstream, asking: make(chan struct{}, offersAtOnce), known: make(map[offerKey]offer)}
}

// offerKey is a resource in a representation.
type offerKey struct {
	gvr schema.GroupVersionResource
	representation
}

type offer struct {
	made    bool
	expires time.Time
}

// choose returns the first of clauses that kube-apiserver serves of a resource. ok is false if it serves none, and if that
// can't be told before ctx ends.
func (o *offers) choose(ctx context.Context, gvr schema.GroupVersionResource, clauses []clause) (c clause, ok bool) {
	for _, c := range clauses {
		if c.everyKind() {
			return c, true
		}
		offered, err := o.has(ctx, offerKey{gvr, c.representation})
		if err != nil {
			return clause{}, false
		}
		if offered {
			return c, true
		}
	}
	return clause{}, false
}

func (o *offers) has(ctx context.Context, key offerKey) (bool, error) {
	if k, ok := o.lookup(key); ok {
		return k.made, nil
	}
	err, ok := o.calls.do(ctx, key, discoveryTimeout, func(ctx context.Context) error { return o.ask(ctx, key) })
	if !ok {
		return false, cmp.Or(ctx.Err(), errPanicked)
	}
	k, _ := o.lookup(key)
	return k.made, err
}

func (o *offers) lookup(key offerKey) (offer, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k, ok := o.known[key]
	return k, ok && time.Now().Before(k.expires)
}

// ask requests an empty list and remembers whether there is one.
func (o *offers) ask(ctx context.Context, key offerKey) error {
	select {
	case o.asking <- struct{}{}:
		defer func() { <-o.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	resp, err := getOwn(ctx, o.upstream, collectionPath(key.gvr), query("resourceVersion", "0", "fieldSelector", matchesNothing), key.accept(true))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // for the connection to be used again
	made := resp.StatusCode == http.StatusOK && strings.HasPrefix(resp.Header.Get("Content-Type"), key.mediaType())
	if !made && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotAcceptable {
		return fmt.Errorf("list %s in %s: %s", key.gvr, key.representation, resp.Status)
	}
	o.remember(key, made)
	return nil
}

func (o *offers) remember(key offerKey, made bool) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) >= mostOffers {
		maps.DeleteFunc(o.known, func(_ offerKey, k offer) bool { return !now.Before(k.expires) })
	}
	if len(o.known) >= mostOffers {
		clear(o.known) // to be asked for again
	}
	o.known[key] = offer{made: made, expires: now.Add(discoveryTTL)}
}
