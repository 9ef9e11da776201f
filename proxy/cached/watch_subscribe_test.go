package cached

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// onePod is an upstream whose every list has the pod ns/a, as of resourceVersion 120.
type onePod struct{}

func (onePod) URL(path, query string) *url.URL { return &url.URL{Path: path, RawQuery: query} }

func (onePod) DoAs(auth.Identity, *http.Request) (*http.Response, error) {
	const list = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"120"},` +
		`"items":[{"metadata":{"name":"a","namespace":"ns","resourceVersion":"100"}}]}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(list))}, nil
}

// turnConn is a connection whose client does something while it waits for its turn.
type turnConn struct {
	proxytest.Conn
	meanwhile func()
}

func (c turnConn) Turn() (give func()) {
	c.meanwhile()
	return c.Conn.Turn()
}

// A proof says that the cache at 100 is the state as of 120. While the watch waits for its turn, the
// cache moves on to a pod of 110, which is gone again by 120. So the proof is about another state, and
// the cache is as new as the watch asks for without it.
func TestProofOvertaken(t *testing.T) { synctest.Test(t, testProofOvertaken) }

func testProofOvertaken(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opts := &lane.Options{FreshnessTimeout: time.Second}
	lanes := testLanes(ctx, onePod{}, opts)
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	l := lane.NewLane(lanes, lane.Key{GVR: pods}, upstream.ResourceInfo{GVR: pods, Namespaced: true})
	event := func(line string) framing.Event {
		ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(line + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	a := event(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"100"}}}`)
	b := event(`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","namespace":"ns","resourceVersion":"110"}}}`)
	l.Cache.Reset([]*framing.Object{a.Object}, 100, fanout.Ending{})

	c := &Reads{lane: opts}
	r := &read{Request: proxytest.MustParse(t, request.Parse, "/api/v1/pods?watch=1&resourceVersion=105"), lane: l}
	r.conn = turnConn{meanwhile: func() {
		if err := l.Cache.Apply(b, time.Now()); err != nil {
			t.Error(err)
		}
	}}
	filter, _ := fanout.NewFilter("", nil, nil, nil)
	begun := make(chan error, 1)
	go func() {
		want := fanout.Request{Filter: filter, Start: fanout.FromSnapshot, Timeout: time.Minute}
		sub, err := c.subscribeFresh(ctx, r, want, 105, false)
		if err == nil {
			sub.Cancel()
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Second):
		t.Error("the watch has not begun")
		l.Cache.Advance(120)
		<-begun
	}
}

// TestReturnSoon: a watch that is passed through for less than a minute is in the audit log as its
// client asked for it.
func TestReturnSoon(t *testing.T) {
	const asked = "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=5"
	x := &exchange.Exchange{Method: http.MethodGet, Target: asked, Protocol: exchange.HTTP11}
	req, _ := request.Parse(x)
	returnSoon(x, &read{Request: req})
	if !strings.HasPrefix(x.Target, "/api/v1/pods?timeoutSeconds=") || x.URI() != asked {
		t.Errorf("upstream is asked for %s, and the client for %s", x.Target, x.URI())
	}
}
