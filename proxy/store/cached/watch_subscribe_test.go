package cached

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
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
func TestProofOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := &lane.Options{FreshnessTimeout: time.Second}
		l := lane.NewLane(testLanes(t.Context(), onePod{}, opts), lane.Key{GVR: alonePods}, upstream.ResourceInfo{GVR: alonePods, Namespaced: true})
		event := func(name string, rv int) framing.Event {
			ev, err := framing.NewScanner(framing.JSON, nil).Event(fmt.Appendf(nil, `{"type":"ADDED","object":{"kind":"Pod",`+
				`"apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","resourceVersion":"%d"}}}`+"\n", name, rv))
			if err != nil {
				t.Fatal(err)
			}
			return ev
		}
		l.Cache.Reset([]*framing.Object{event("a", 100).Object}, 100, fanout.Ending{})
		r := readOf(t, l, "/api/v1/pods?watch=1&resourceVersion=105")
		r.conn = turnConn{meanwhile: func() {
			if err := l.Cache.Apply(event("b", 110), time.Now()); err != nil {
				t.Error(err)
			}
		}}
		want := fanout.Request{Filter: r.filter, Start: fanout.FromSnapshot, Timeout: time.Minute}
		sub, err := (&Reads{Config: Config{Lane: opts}}).subscribeFresh(t.Context(), r, want, 105, false)
		if err != nil {
			t.Fatal(err)
		}
		sub.Cancel()
	})
}

// TestReturnSoon: a watch that is passed through for less than a minute is in the audit log as its
// client asked for it.
func TestReturnSoon(t *testing.T) {
	const asked = "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=5"
	x := &exchange.Exchange{Method: http.MethodGet, Target: asked, Protocol: exchange.HTTP11}
	returnSoon(x, readOf(t, nil, asked))
	if !strings.HasPrefix(x.Target, "/api/v1/pods?timeoutSeconds=") || x.URI() != asked {
		t.Errorf("upstream is asked for %s, and the client for %s", x.Target, x.URI())
	}
}
