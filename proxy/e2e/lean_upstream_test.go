package e2e_test

import (
	"bufio"
	"bytes"
	bigendian "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// leanFront is kube-apiserver with the feature gate ManagedFieldsOptOut (KEP-5958, 1.38): it stands
// in front of one that ignores what it is asked to leave out.
type leanFront struct {
	*httptest.Server
	asked atomic.Int64 // answers without managedFields
}

func newLeanFront(t *testing.T, c *cluster) *leanFront {
	t.Helper()
	config, err := c.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(c.Ready.Server)
	if err != nil {
		t.Fatal(err)
	}
	f := &leanFront{}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:      &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true},
		FlushInterval:  -1,
		ModifyResponse: f.modify,
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepts, lean, ok := understood(r.Header.Get("Accept"))
		if !ok {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		r.Header.Set("Accept", accepts)
		if lean {
			r.Header.Set("X-Lean", "yes")
			r.Header.Set("Accept-Encoding", "identity")
		}
		proxy.ServeHTTP(w, r)
	}))
	f.EnableHTTP2 = true
	f.StartTLS()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

// understood returns an Accept header without drop, and whether the first clause has it. ok is false
// if every clause asks to leave out something else than managedFields.
func understood(header string) (accepts string, lean, ok bool) {
	var clauses []string
	for clause := range strings.SplitSeq(header, ",") {
		whole, wanted := strings.CutSuffix(clause, drop)
		if strings.Contains(whole, "drop=") {
			continue
		}
		if clauses == nil {
			lean = wanted
		}
		clauses = append(clauses, whole)
	}
	return strings.Join(clauses, ","), lean, clauses != nil || header == ""
}

// modify removes managedFields from the answer to a request for lean objects.
func (f *leanFront) modify(resp *http.Response) error {
	if resp.Request.Header.Get("X-Lean") == "" || resp.StatusCode != http.StatusOK {
		return nil
	}
	f.asked.Add(1)
	contentType := resp.Header.Get("Content-Type")
	next := nextLine
	switch {
	case strings.HasPrefix(contentType, protoType+";stream=watch"):
		next = nextFrame
	case strings.HasPrefix(contentType, protoType):
		next = nextBody
	}
	r, w := io.Pipe()
	go func(body io.ReadCloser) {
		defer body.Close()
		in := bufio.NewReader(body)
		for {
			part, err := next(in)
			if len(part) > 0 {
				_, err = w.Write(part)
			}
			if err != nil {
				w.CloseWithError(err) // io.EOF ends the body
				return
			}
		}
	}(resp.Body)
	resp.Body = r
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return nil
}

func nextLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadBytes('\n')
	if len(line) == 0 {
		return nil, err
	}
	return leanJSON(line)
}

func nextFrame(in *bufio.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(in, size); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+bigendian.BigEndian.Uint32(size))
	copy(frame, size)
	if _, err := io.ReadFull(in, frame[4:]); err != nil {
		return nil, err
	}
	return leanProtobuf(frame, true)
}

func nextBody(in *bufio.Reader) ([]byte, error) {
	body, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, io.EOF
	}
	return leanProtobuf(body, false)
}

// TestLeanUpstream: where kube-apiserver leaves managedFields out on request, a lane whose clients all
// are lean asks for that. Every client gets what it gets from another lane. The first client that
// wants whole objects gets them from a lane of its own, and so do all who come later.
func TestLeanUpstream(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	front := newLeanFront(t, c)
	p := privateWatchfan(t, c, "--kubeconfig="+c.over(t, front.Listener.Addr().String(), "admin"))
	theirs := c.direct(t)
	const ns = "lean-upstream"
	maps := createLeanMaps(t, theirs, ns)
	p.waitReady(t)
	secure, admin := p.secure(t, c.token(t, "admin")), p.admin(t)
	lanes := func(lean, whole float64) {
		t.Helper()
		steady.Until(t, "upstream watches of ConfigMaps", func() error {
			for _, form := range []string{"json", "protobuf"} {
				for encoding, want := range map[string]float64{form + "-lean": lean, form: whole} {
					got := admin.metric(t, "watchfan_upstream_watches", `resource="configmaps"`, fmt.Sprintf("encoding=%q", encoding))
					if got != want {
						return fmt.Errorf("%v in %s, want %v", got, encoding, want)
					}
				}
			}
			return nil
		})
	}
	watch := func(d *target, uri, accepts string) *recording {
		r, err := d.tryWatch(t.Context(), uri, accept(accepts))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	startLeanLanes(t, secure, maps)
	lanes(1, 0)
	sameLean(t, secure, theirs, maps)
	sameLean(t, secure.in("lean"), theirs, maps)
	lanes(1, 0)

	// Watches of both lanes go on while a client that wants whole objects starts lanes of them.
	live := fmt.Sprintf("%s?watch=1&resourceVersion=%d", maps, theirs.version(t, maps))
	lean := []*recording{watch(secure, live, jsonType+drop), watch(secure.in("lean"), live, jsonType)}
	makeConfigMap(t, theirs, ns, "first", "")
	for _, form := range []string{jsonType, protoType} {
		uri := maps + "/c-04?resourceVersion=0"
		want, got := theirs.do(t, http.MethodGet, uri, accept(form), ""), secure.do(t, http.MethodGet, uri, accept(form), "")
		if !bytes.Equal(got.body, want.body) || !bytes.Contains(got.body, []byte("fieldsV1")) && form == jsonType {
			t.Errorf("a whole object as %s is %d bytes, want %d", form, len(got.body), len(want.body))
		}
	}
	lanes(1, 1)
	later := fmt.Sprintf("%s?watch=1&resourceVersion=%d", maps, theirs.version(t, maps))
	both := []*recording{watch(secure, later, jsonType+drop), watch(secure, later, jsonType), watch(theirs, later, jsonType)}
	if got := admin.metric(t, "watchfan_lane_watchers", `resource="configmaps"`, `encoding="json-lean"`); got != 2 {
		t.Errorf("%v watches of the lean lane, want the 2 from before the lane of whole objects", got)
	}
	for i := range 20 {
		theirs.patch(t, fmt.Sprintf("%s/c-%02d", maps, i), `{"data":{"k":"changed"}}`)
	}
	theirs.remove(t, maps+"/c-05")
	const writes = 20 + 1
	lines := func(r *recording, n int) (all []string) {
		for _, e := range r.wait(t, n) {
			all = append(all, e.line)
		}
		r.stop()
		return all
	}
	whole := lines(both[2], writes)
	if got := lines(both[1], writes); !slices.Equal(got, whole) {
		t.Errorf("the whole watch got\n%.600q\nwant\n%.600q", got, whole)
	}
	var want []string
	for _, line := range whole {
		line, err := leanJSON([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(line))
	}
	if got := lines(both[0], writes); !slices.Equal(got, want) {
		t.Errorf("the lean watch of the lane of whole objects got\n%.600q\nwant\n%.600q", got, want)
	}
	for _, r := range lean {
		if got := lines(r, 1+writes); !slices.Equal(got[1:], want) {
			t.Errorf("a watch of the lean lane got\n%.600q\nwant one and\n%.600q", got, want)
		}
	}
	if front.asked.Load() == 0 {
		t.Error("kube-apiserver was never asked for lean objects")
	}
}

// createLeanMaps creates a namespace with 20 ConfigMaps, and returns their URI.
func createLeanMaps(t *testing.T, theirs *target, ns string) (maps string) {
	t.Helper()
	createNamespaces(t, theirs, ns)
	for i := range 20 {
		makeConfigMap(t, theirs, ns, fmt.Sprintf("c-%02d", i), fmt.Sprintf(`"l":"%d"`, i%2))
	}
	return "/api/v1/namespaces/" + ns + "/configmaps"
}

// startLeanLanes lists maps, because lanes know only the states since they began.
func startLeanLanes(t *testing.T, d *target, maps string) {
	t.Helper()
	d.warmAs(t, maps, jsonType+drop, protoType+drop)
}

// sameLean compares lists and gets of lean objects with kube-apiserver's less the managedFields.
func sameLean(t *testing.T, d, theirs *target, maps string) {
	t.Helper()
	exact := fmt.Sprintf("?resourceVersion=%d&resourceVersionMatch=Exact", theirs.version(t, maps))
	for _, uri := range []string{maps + exact, maps + exact + "&labelSelector=l%3D1", maps + "/c-03?resourceVersion=0"} {
		for _, form := range []string{jsonType, protoType} {
			want := theirs.do(t, http.MethodGet, uri, accept(form), "").lean(t)
			got := d.do(t, http.MethodGet, uri, accept(form+drop), "")
			if !bytes.Equal((row{}).normal(got), (row{}).normal(want)) {
				t.Errorf("%s as %s from %s: got %d bytes\n%.600q\nwant %d\n%.600q",
					uri, form, d.name, len(got.body), got.body, len(want.body), want.body)
			}
		}
	}
}

// TestLeanSeed: a replica fills its lean lanes from those of a sibling.
func TestLeanSeed(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	upstream := "--kubeconfig=" + c.over(t, newLeanFront(t, c).Listener.Addr().String(), "admin")
	theirs := c.direct(t)
	maps := createLeanMaps(t, theirs, "lean-seed")
	next := replicas(t, c)
	for _, source := range []string{"upstream", "sibling"} {
		p := next(upstream)
		d := p.secure(t, c.token(t, "admin"))
		startLeanLanes(t, d, maps)
		sameLean(t, d, theirs, maps)
		admin := p.admin(t)
		steady.Until(t, "lean lanes that are filled from the "+source, func() error {
			var debug struct {
				Lanes []struct {
					Resource, Encoding string
					Filled             struct{ Source string }
				}
			}
			if err := json.Unmarshal(admin.get(t, "/debug/lanes?format=json").body, &debug); err != nil {
				return err
			}
			filled := 0
			for _, l := range debug.Lanes {
				if l.Resource == "configmaps" && strings.HasSuffix(l.Encoding, "-lean") && l.Filled.Source == source {
					filled++
				}
			}
			if filled != 2 {
				return fmt.Errorf("%d, want 2", filled)
			}
			return nil
		})
	}
}
