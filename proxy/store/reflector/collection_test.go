package reflector

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// roles is a kube-apiserver that lists the metadata of ClusterRoles with these
// names, one in a page, in protobuf.
type roles struct {
	names []string
	pages atomic.Int64                             // how many it has listed
	warn  func(w http.ResponseWriter, path string) // adds headers; nil for none
}

func (s *roles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.warn != nil {
		s.warn(w, r.URL.Path)
	}
	q := r.URL.Query()
	selected, err := fields.ParseSelector(q.Get("fieldSelector"))
	if s.pages.Add(1) > 10 || err != nil { // the list does not end
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var token struct {
		Start string `json:"start"`
	}
	raw, _ := base64.RawURLEncoding.DecodeString(q.Get("continue"))
	_ = json.Unmarshal(raw, &token)
	list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
	for _, name := range s.names {
		switch {
		case name < token.Start || !selected.Matches(fields.Set{"metadata.name": name}):
		case len(list.Items) == 0:
			list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "7"}}}
			token.Start = name + "\x00"
		case list.Continue == "":
			raw, _ := json.Marshal(token)
			list.Continue = base64.RawURLEncoding.EncodeToString(raw)
		}
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	unknown.Raw, _ = list.Marshal()
	body, _ := unknown.Marshal()
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = w.Write(append([]byte("k8s\x00"), body...))
}

// collection returns the roles as a reflector sees them.
func (s *roles) collection(t *testing.T) *Collection {
	up := httptest.NewServer(s)
	t.Cleanup(up.Close)
	source := NewSource(server{up}, nil, func() bool { return false },
		metrics.NewSet(), proxytest.Guard())
	c := source.Collection(upstream.ResourceInfo{Kind: "ClusterRole", Watchable: true, GVR: schema.GroupVersionResource{
		Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}},
		request.Representation{Encoding: framing.Protobuf, Metadata: "v1"}, Selection{})
	if err := c.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.pages.Store(0)
	return c
}

// A continue token cannot express each name, and then leads back to the same page. A list that meets
// such a name ends.
func TestPagesOfReplacedNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		pages int64 // of a list
		ok    bool
	}{
		{[]string{"a", "ü", "ü\ufffd"}, 3, true},
		{[]string{"a", "u\xff"}, 2, true}, // in the last page
		{[]string{"a", "u\xfe", "u\xff"}, 2, false},
		{[]string{"u\x80", "u\x81"}, 1, false},
	} {
		s := &roles{names: c.names}
		collection := s.collection(t)
		check := func(how string, names []string, err error) {
			t.Helper()
			if c.ok != (err == nil) || err != nil && !errors.Is(err, framing.ErrReplaced) {
				t.Errorf("%s of %q: %v", how, c.names, err)
			}
			if got := s.pages.Swap(0); got != c.pages || err == nil && !slices.Equal(names, c.names) {
				t.Errorf("%s of %q: %q in %d pages", how, c.names, names, got)
			}
		}
		objects, err := collection.ListAt(t.Context(), 9, func(string) bool { return true })
		var names []string
		for _, o := range objects {
			names = append(names, o.Name)
		}
		check("list", names, err)

		names = nil
		for token := ""; ; {
			var meta framing.ListMeta
			if meta, err = collection.ListIdentities(t.Context(), 1, token, func(id framing.Identity) error {
				names = append(names, string(id.Name))
				return nil
			}); err != nil || meta.Continue == "" {
				break
			}
			token = meta.Continue
		}
		check("identities", names, err)

		r := New(Config{Collection: collection, Cache: fanout.NewCache(fanout.Limits{}, fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet()))),
			Log: proxytest.Guard().Log, Filling: noFilling{}, Redefined: func(time.Time, bool) bool { return false },
			From: func() uint64 { return 0 }, Series: Series{Set: metrics.NewSet()}})
		err = r.fillByList(t.Context())
		names = nil
		r.Cache.Snapshot().All(func(o *framing.Object) bool {
			names = append(names, o.Name)
			return true
		})
		check("fill", names, err)
	}
}

// An object is found whose name has characters that mean something in a field selector.
func TestGetAt(t *testing.T) {
	s := &roles{names: []string{"a", "a,b", "a=b", `a\b`, "a!=b", "u\xff"}}
	c := s.collection(t)
	for _, name := range append(s.names, "none") {
		objects, err := c.GetAt(t.Context(), name, 9)
		if err != nil || (len(objects) == 1) != (name != "none") || len(objects) == 1 && objects[0].Name != name {
			t.Errorf("%q: got %v, error %v", name, objects, err)
		}
	}
}

// What upstream warns the proxy of because of its credential is no concern of a lane's clients.
func TestWarnings(t *testing.T) {
	const own, resource = `299 - "own"`, `299 - "resource"`
	s := &roles{warn: func(w http.ResponseWriter, path string) {
		w.Header().Add("Warning", own)
		if path != "/version" {
			w.Header().Add("Warning", resource)
		}
	}}
	if got := s.collection(t).Warnings(); !slices.Equal(got, []string{resource}) {
		t.Errorf("got %q", got)
	}
}

// server implements auth.APIServer.
type server struct{ *httptest.Server }

func (s server) URL(path, query string) *url.URL {
	u, _ := url.Parse(s.Server.URL + path)
	u.RawQuery = query
	return u
}

func (s server) DoAs(_ auth.Identity, req *http.Request) (*http.Response, error) {
	return s.Client().Do(req)
}

// noFilling is a Filling that nobody looks at.
type noFilling struct{ Filling }

func (noFilling) Progress()     {}
func (noFilling) End(time.Time) {}
