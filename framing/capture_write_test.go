//go:build capture

package framing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

var devcluster = flag.String("devcluster", "../bin/devcluster", "the `binary` built from deploy/devcluster")

const customResourceDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"foos.ex.io"},
"spec":{"group":"ex.io","scope":"Namespaced",
"names":{"plural":"foos","singular":"foo","kind":"Foo","listKind":"FooList"},
"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
"properties":{"spec":{"type":"object",
"properties":{"c":{"type":"string"},"n":{"type":"integer"},"on":{"type":"boolean"}}}}}},
"selectableFields":[{"jsonPath":".spec.c"},{"jsonPath":".spec.n"},{"jsonPath":".spec.on"}]}]}}`

// rawData has repeated names, invalid UTF-8 and half a surrogate pair. kube-apiserver copies it
// unchanged.
const rawData = `"revision":1,"data":{"name":"\ud800","twice":1,"twice":{"x":"` + "\xff\xfe" + `"}}`

// TestCapture is not a test: it writes testdata.
func TestCapture(t *testing.T) {
	c := startDevcluster(t)
	c.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", customResourceDefinition)
	c.must("POST", "/api/v1/namespaces", `{"metadata":{"name":"golden"}}`)
	// After a restart, the watch caches don't know resourceVersion 1.
	if err := c.RestartAPIServer(); err != nil {
		t.Fatal(err)
	}
	for _, s := range specimens {
		t.Log(s.file)
		c.scenario(s)
	}
	raw := specimen{"raw", "/apis/apps/v1/namespaces/golden/controllerrevisions", rawData, "", 0}
	c.create(raw, "a", `{"set":"golden"}`)
	for _, r := range raw.representations() {
		write(t, r, raw.file, []section{
			{"initial", c.watch(r, raw.collection, initialQuery, 2)()},
			{"empty", c.list(r, raw.collection, inNone)},
			{"list", c.list(r, raw.collection, "")},
		})
	}
}

const (
	inSet        = "labelSelector=set%3Dgolden"
	inNone       = "labelSelector=set%3Dnone"
	inSelector   = "labelSelector=set%3Dgolden,sel%3D1"
	initialQuery = inSet + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)

// section is the events of a watch, or one list.
type section struct {
	name  string
	parts [][]byte
}

// scenario moves object a into the selector sel=1 and out of it, adds b, and deletes both. A client
// of each representation watches.
func (c *cluster) scenario(s specimen) {
	path := s.collection
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(c.must("GET", path+"?"+inNone, ""), &list); err != nil {
		c.t.Fatal(err)
	}
	from := "&resourceVersion=" + list.Metadata.ResourceVersion

	type client struct {
		representation
		all, selected, bookmark    func() [][]byte
		initial, empty, list, page [][]byte
	}
	var clients []*client
	for _, r := range s.representations() {
		clients = append(clients, &client{
			representation: r,
			all:            c.watch(r, path, inSet+from, 8+2*s.dying),
			selected:       c.watch(r, path, inSelector+from, 7+2*s.dying),
			empty:          c.list(r, path, inNone),
		})
	}
	c.create(s, "a", `{"set":"golden"}`)
	patch := func(body string) { c.must("PATCH", path+"/a", body) }
	patch(`{"metadata":{"labels":{"sel":"1"}}}`)
	patch(s.change)
	patch(`{"metadata":{"labels":{"sel":null}}}`)
	patch(`{"metadata":{"labels":{"sel":"1"}}}`)
	c.create(s, "b", `{"set":"golden","sel":"1"}`)
	for _, l := range clients {
		l.list = c.list(l.representation, path, inSet)
		l.page = c.list(l.representation, path, "limit=1")
		l.initial = c.watch(l.representation, path, initialQuery, 3)()
		// This is for a watch without events: a watch with events needs no bookmark.
		l.bookmark = c.watch(l.representation, path, "allowWatchBookmarks=true&timeoutSeconds=5&"+inNone+from, 1)
	}
	for _, name := range []string{"a", "b"} {
		c.must("DELETE", path+"/"+name+"?gracePeriodSeconds=0", "")
	}
	for _, l := range clients {
		sections := []section{{"all", l.all()}, {"selected", l.selected()}, {"initial", l.initial}}
		if s.file != "event" { // events have no watch cache, so no bookmarks
			expired := c.watch(l.representation, path, "resourceVersion=1", 1)
			sections = append(sections, section{"bookmark", l.bookmark()}, section{"expired", expired()})
		}
		sections = append(sections, section{"empty", l.empty}, section{"list", l.list}, section{"page", l.page})
		write(c.t, l.representation, s.file, sections)
	}
}

// write writes JSON as it is, and each event or list of the other encodings as a line of base64.
func write(t *testing.T, r representation, file string, sections []section) {
	var b bytes.Buffer
	for _, s := range sections {
		fmt.Fprintf(&b, "-- %s --\n", s.name)
		for _, part := range s.parts {
			if r.encoding != framing.JSON {
				part = append(base64.StdEncoding.AppendEncode(nil, part), '\n')
			}
			b.Write(part)
		}
	}
	if err := os.MkdirAll(filepath.Join("testdata", r.dir), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata", r.dir, file+".txt"), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// cluster is a running devcluster. Its admin's credentials are used.
type cluster struct {
	*proxytest.Cluster
	t      *testing.T
	token  string
	client *http.Client
}

func startDevcluster(t *testing.T) *cluster {
	c := proxytest.RunCluster(t, *devcluster, "--apiserver-arg", "feature-gates=CBORServingAndStorage=true")
	token, err := c.Token("admin")
	if err != nil {
		t.Fatal(err)
	}
	authority, err := c.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{c, t, token, &http.Client{Transport: &http.Transport{TLSClientConfig: authority}}}
}

// do sends a request until kube-apiserver has the resource, and returns the answer, which is no error.
func (c *cluster) do(ctx context.Context, method, path, accept, body string) (resp *http.Response) {
	c.t.Helper()
	steady.Until(c.t, path, func() error {
		req, err := http.NewRequestWithContext(ctx, method, c.Ready.Server+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Accept", accept)
		if method == "PATCH" {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
		if resp, err = c.client.Do(req); err != nil || resp.StatusCode < 300 {
			return err
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	})
	return resp
}

func (c *cluster) must(method, path, body string) []byte {
	c.t.Helper()
	return c.answer(method, path, asJSON.accept, body)
}

func (c *cluster) list(r representation, path, query string) [][]byte {
	c.t.Helper()
	return [][]byte{c.answer("GET", path+"?"+query, r.header("List"), "")}
}

func (c *cluster) answer(method, path, accept, body string) []byte {
	c.t.Helper()
	resp := c.do(c.t.Context(), method, path, accept, body)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func (c *cluster) create(s specimen, name, labels string) {
	body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":%s},%s}`, name, labels, s.object)
	if strings.HasPrefix(s.collection, "/apis/ex.io") {
		body = `{"apiVersion":"ex.io/v1","kind":"Foo",` + body[1:]
	}
	c.must("POST", s.collection, body)
}

// watch opens a watch and returns a func that waits for its first n events.
func (c *cluster) watch(r representation, path, query string, n int) (events func() [][]byte) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	resp := c.do(ctx, "GET", path+"?watch=1&"+query, r.header(""), "")
	return func() [][]byte {
		defer cancel()
		defer resp.Body.Close()
		var events [][]byte
		stream := framing.NewEventReader(r.encoding, resp.Body)
		for range n {
			event, err := stream.Next()
			if err != nil {
				c.t.Fatalf("watch %s?%s: %v after %q", path, query, err, events)
			}
			event = bytes.Clone(event)
			if r.encoding == framing.Protobuf { // the reader has dropped its length
				event = append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
			}
			events = append(events, event)
		}
		return events
	}
}

// header returns the value of Accept. suffix is List for a list.
func (r representation) header(suffix string) string {
	if r.metadata {
		return r.accept + ";as=PartialObjectMetadata" + suffix + ";g=meta.k8s.io;v=v1"
	}
	return r.accept
}
