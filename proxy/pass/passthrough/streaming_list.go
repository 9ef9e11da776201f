package passthrough

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// streamingLists knows which servers behind kube-apiserver never end a streaming list: the section
// Streaming lists of the package's documentation says why it asks. Its methods may be called from any
// goroutine.
type streamingLists struct {
	calls remember.Coalescer[schema.GroupVersionResource, bool] // reports whether the list is endless
	known remember.TTLCache[schema.GroupVersionResource, knownList]
}

// knownList is what a probe has shown.
type knownList struct {
	endless bool
	asked   time.Time
}

const (
	// probeTime is how long the server has for the bookmark of a list of nothing, once it has answered
	// something else. It has probeMost in all, as while kube-apiserver starts again.
	probeTime = time.Second
	probeMost = 10 * time.Second
	// versionAgain is the time between two questions for something else.
	versionAgain = time.Second
	// mostProbed is how many bytes of a probe's answer are read: the server may ignore the selector.
	mostProbed = 1 << 20
	// headWait is how long a streaming list waits for the head of its response before the server is
	// suspected of sending none.
	headWait = probeTime / 2
	// probeAgain is the age at which what is known is asked again, beside the watch that has used it.
	// It is forgotten if no watch uses it for upstream.DiscoveryTTL.
	probeAgain = 30 * time.Second
	// mostLists bounds the resources that are remembered. A client needs the right to watch each.
	mostLists = 1024
)

var errEndless = errors.New("the server does not end streaming lists")

// streamsList reports whether a watch of a resource with these parameters waits for the end of the initial
// events, and kube-apiserver may not be the one who answers. kube-apiserver itself sends the end, or refuses.
func streamsList(gvr schema.GroupVersionResource, query url.Values) bool {
	return !upstream.BuiltIn(gvr.Group) &&
		request.BoolParameter(query, "sendInitialEvents") && request.BoolParameter(query, "allowWatchBookmarks")
}

// sendList is send for a streaming list. The error is errEndless if the server would accept the list and
// never end it.
func (p *Forwarder) sendList(r *passing) (*http.Response, error) {
	probe, settled := newListProbe(r), atomic.Bool{}
	late := time.AfterFunc(headWait, func() {
		if p.endless(r.holding.ctx, probe) && settled.CompareAndSwap(false, true) {
			r.holding.cancel(errEndless)
		}
	})
	defer late.Stop()
	resp, err := p.send(r)
	refused := !settled.CompareAndSwap(false, true)
	if err != nil {
		if refused {
			err = errEndless
		}
		return nil, err
	}
	began := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols
	if refused || began && p.endless(r.holding.ctx, probe) {
		_ = resp.Body.Close()
		return nil, errEndless
	}
	return resp, nil
}

// listProbe is a streaming list like a client's, with its path and its rights, which has no objects to
// send. It is immutable.
type listProbe struct {
	gvr    schema.GroupVersionResource
	id     auth.Identity
	source account.Source // of the client
	req    *http.Request
}

// newListProbe returns the probe for r. It selects the name that r selects, because r may have the right
// to no other.
func newListProbe(r *passing) *listProbe {
	to := *r.req.URL
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, cmp.Or(r.asked.ObjectName(), "-"))
	to.RawQuery = upstream.Query("watch", "true", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan",
		"allowWatchBookmarks", "true", "timeoutSeconds", "1", "fieldSelector", name.String())
	header := http.Header{"Accept": {"application/json"}}
	for field, values := range r.req.Header {
		if strings.HasPrefix(field, request.ImpersonatePrefix) {
			header[field] = values
		}
	}
	return &listProbe{r.asked.GVR, r.id, r.holding.source, &http.Request{Method: http.MethodGet, URL: &to, Header: header}}
}

// endless reports whether the server is known not to end lists of a resource. kube-apiserver itself ends
// them. If it is not known, probe is sent, or the answer to another client's awaited. What has been known
// for long is used, and asked again.
func (p *Forwarder) endless(ctx context.Context, probe *listProbe) bool {
	if p.Own != nil && p.Own(probe.gvr.GroupVersion()) {
		return false
	}
	ask := func(ctx context.Context) bool { return p.learnEnd(ctx, probe) }
	known, ok := p.lists.known.Get(probe.gvr)
	if !ok {
		endless, _ := p.lists.calls.Do(ctx, probe.gvr, probeMost, ask)
		return endless
	}
	if time.Since(known.asked) >= probeAgain {
		p.lists.calls.Start(probe.gvr, probeMost, ask)
	}
	return known.endless
}

// learnEnd asks whether lists are endless, and remembers the answer if it holds for all clients.
func (p *Forwarder) learnEnd(ctx context.Context, probe *listProbe) bool {
	began := time.Now()
	endless, forAll := p.askEnd(ctx, probe)
	if !forAll {
		return endless
	}
	if before, _ := p.lists.known.Peek(probe.gvr); endless && !before.endless {
		p.Guard.Log.Info("Refused streaming lists, the API server behind kube-apiserver never ends them",
			"resource", request.ResourceText(probe.gvr))
	}
	p.lists.known.PutFor(probe.source, probe.gvr, knownList{endless, began}, began, upstream.DiscoveryTTL)
	return endless
}

// askEnd sends probe. forAll is false if the answer says nothing about the server.
func (p *Forwarder) askEnd(ctx context.Context, probe *listProbe) (endless, forAll bool) {
	asked, cancel := context.WithCancel(ctx)
	var late atomic.Bool
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		defer p.Guard.Caught("streaming list", cancel)
		p.awaitVersion(asked, probe)
		if exchange.Sleep(asked, probeTime) {
			late.Store(true)
			cancel()
		}
	})
	resp, err := p.Upstream.DoAs(probe.id, probe.req.Clone(asked))
	if err != nil { // if there is no answer, the server may be slow, or kube-apiserver to authenticate a stranger
		return late.Load() || errors.Is(ctx.Err(), context.DeadlineExceeded), late.Load() && !p.Authorizer.Source(probe.id).Stranger
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest, http.StatusUnprocessableEntity: // to the probe's selector; a client may list instead
		return true, true
	default:
		return false, false
	}
	some := &io.LimitedReader{R: resp.Body, N: mostProbed}
	events := framing.NewEventReader(framing.JSON, some)
	for {
		line, err := events.Next()
		if err != nil {
			if late.Load() || errors.Is(err, io.EOF) || some.N <= 0 {
				return true, true
			}
			return errors.Is(ctx.Err(), context.DeadlineExceeded), false // otherwise the connection has broken
		}
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		switch err := json.Unmarshal(line, &event); {
		case err != nil, event.Type == "ERROR":
			return false, false
		case event.Type == "BOOKMARK" && event.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return false, true
		}
	}
}

// awaitVersion waits until the server of the probe's resource says what the version has. No answer says no more than
// one that kube-apiserver is busy or ill.
func (p *Forwarder) awaitVersion(ctx context.Context, probe *listProbe) {
	to := p.Upstream.URL("/apis/"+probe.gvr.GroupVersion().String(), "")
	for again := true; again; again = exchange.Sleep(ctx, versionAgain) {
		r := &http.Request{Method: http.MethodGet, URL: to, Header: probe.req.Header.Clone()}
		resp, err := p.Upstream.DoAs(probe.id, r.WithContext(ctx))
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if !apistatus.Busy(resp.StatusCode) {
			return
		}
	}
}
