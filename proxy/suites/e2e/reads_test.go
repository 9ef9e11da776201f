package e2e_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	bigendian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// quietCluster returns a cluster in which nobody writes what others read in all namespaces, and the
// watchfan in front of it. It has the objects of contract.md 8.1.
func quietCluster(t *testing.T) (c *cluster, p *watchfan) {
	t.Helper()
	c, p = quiet.start(t, func(c *cluster) { makeFixtures(t, c.direct(t)) })
	p.waitReady(t)
	return c, p
}

func makeFixtures(t *testing.T, d *target) {
	t.Helper()
	createNamespaces(t, d, "a", "a-b", "b", "big")
	for _, ns := range []string{"b", "a", "a-b"} {
		for _, name := range []string{"y", "x"} {
			d.create(t, "/api/v1/namespaces/"+ns+"/configmaps",
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":"1",`+
					`"n":"%d"}},"data":{"k":"<&>\u2028é😀","e":""},"binaryData":{"b":"AAEC/w=="}}`, name, len(ns)))
		}
	}
	for _, n := range []int{129_000, 130_900, 200_000} { // around the threshold of compression
		d.create(t, "/apis/apps/v1/namespaces/big/controllerrevisions",
			fmt.Sprintf(`{"metadata":{"name":"big-%d"},"revision":1,"data":{"k":%q}}`, n, strings.Repeat("x", n)))
	}
	d.create(t, "/api/v1/namespaces/a/endpoints", `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"}}`)
	d.create(t, "/api/v1/namespaces/a/pods", podBody("p", "n1"))
	for _, name := range oddNames {
		d.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	createCRD(t, d, "ex.io", "Foo", "Namespaced")
	for _, name := range []string{"f1", "f2"} {
		d.create(t, "/apis/ex.io/v1/namespaces/a/foos",
			fmt.Sprintf(`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":%q},`+
				`"spec":{"c":"red","n":9007199254740993}}`, name))
	}
	for uri, last := range map[string]string{"/openapi/v3": "apis/ex.io/v1", "/apis": "ex.io/v1"} { // published late
		steady.Until(t, last+" in "+uri, func() error {
			if resp := d.get(t, uri); !bytes.Contains(resp.body, []byte(last)) {
				return fmt.Errorf("%d bytes without it", len(resp.body))
			}
			return nil
		})
	}
}

// oddNames are names that only RBAC's kinds may have. They mean something in URLs and selectors.
var oddNames = []string{"a=b", "a,b", `a\b`, "a b", "a+b&c;d#e?f", "é😀"}

const (
	jsonType  = "application/json"
	protoType = "application/vnd.kubernetes.protobuf"
	tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partial   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partials  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// row is one request, sent both ways.
type row struct {
	id     string
	method string // GET if empty
	uri    string
	header http.Header
	body   string
	cached bool // watchfan has to answer itself
	asker  asker
}

func accept(types ...string) http.Header { return http.Header{"Accept": {strings.Join(types, ",")}} }

var (
	braces   = regexp.MustCompile(`\{([^{}]*)\}`)
	repeated = regexp.MustCompile(`^(.*)\*(\d+)$`)
)

// requests reads testdata/requests/NAME.txt. A line is an id, or the word cached if watchfan has to answer itself,
// perhaps a method, a path, and perhaps headers and a body behind -H and -d, as for curl, but without quotes.
//
//	{a|b}          makes a request for each
//	{x*9}          is xxxxxxxxx
//	\xff, \t       are bytes
//	NAME = TEXT    gives $NAME a meaning, as names does
//
// A line that begins with two blanks continues the one before.
func requests(t *testing.T, name string, names map[string]string) (rows []row) {
	t.Helper()
	content, err := os.ReadFile("testdata/requests/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]string)
	maps.Copy(known, names)
	for line := range strings.SplitSeq(strings.ReplaceAll(string(content), "\n  ", ""), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		line = os.Expand(line, func(name string) string { return known[name] })
		if name, text, ok := strings.Cut(line, " = "); ok {
			known[name] = text
			continue
		}
		line, body, _ := strings.Cut(line, " -d ")
		for _, head := range alternatives(line) {
			rows = append(rows, newRow(head, body))
		}
	}
	return rows
}

// alternatives returns the texts that one with braces stands for.
func alternatives(text string) (all []string) {
	group := braces.FindStringSubmatchIndex(text)
	if group == nil {
		return []string{text}
	}
	within := text[group[2]:group[3]]
	if m := repeated.FindStringSubmatch(within); m != nil && !strings.Contains(within, "|") {
		n, _ := strconv.Atoi(m[2]) // of digits
		within = strings.Repeat(m[1], n)
	}
	for choice := range strings.SplitSeq(within, "|") {
		for _, one := range alternatives(text[:group[0]] + choice + text[group[1]:]) {
			if !slices.Contains(all, one) { // as it is where braces stand in braces
				all = append(all, one)
			}
		}
	}
	return all
}

func newRow(head, body string) row {
	parts := strings.Split(head, " -H ")
	words := strings.Fields(parts[0])
	r := row{id: words[0], uri: words[len(words)-1], body: body, cached: words[0] == "cached"}
	if len(words) > 2 {
		r.method = words[1]
	}
	var headers []string
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(part, ": ")
		headers = append(headers, name, strings.NewReplacer(`\xff`, "\xff", `\t`, "\t").Replace(value))
	}
	if headers != nil {
		r = r.with(headers...)
	}
	return r
}

// rows are all requests of TestReads. now is a resourceVersion that the caches know.
func rows(t *testing.T, now string) (rows []row) {
	t.Helper()
	for _, name := range []string{"contract", "odd", "shards"} {
		rows = append(rows, requests(t, name, map[string]string{"NOW": now})...)
	}
	return append(rows, inEveryForm(rows)...)
}

// inEveryForm repeats the reads that name no form, in each form that caches serve, as clients ask
// for it.
func inEveryForm(rows []row) []row {
	var more []row
	for _, r := range rows {
		if r.header != nil || r.method != "" || strings.HasPrefix(r.id, "O") || strings.HasPrefix(r.id, "//") {
			continue
		}
		as := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		if list := regexp.MustCompile(`^/apis?/.*s/?(\?|$)`); list.MatchString(r.uri) &&
			!strings.Contains(r.uri, "watch") {
			as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		}
		for form, accepted := range map[string]string{
			"lean":                 jsonType + drop,
			"protobuf":             protoType + "," + jsonType,
			"metadata":             jsonType + as,
			"metadata in protobuf": protoType + as + "," + jsonType + as + "," + jsonType,
		} {
			r := r
			r.id, r.header = r.id+" "+form, accept(accepted)
			if form == "lean" {
				r.asker = lean
			}
			more = append(more, r)
		}
	}
	return more
}

// TestReads sends each request of contract.md 8.2, 8.3 and 8.5 that needs no preparation both ways,
// through both ports and over HTTP/2, and compares the answers by the rules of 8.1.
// With -short it sends about a hundred of them, and no watch.
func TestReads(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	direct, ways := c.direct(t), p.ways(t, c.token(t, "admin"))
	now := fmt.Sprint(direct.version(t, "/api/v1/configmaps"))
	all := rows(t, now)
	if !direct.enables(t, shardedListAndWatch) { // it sends everything, and TestOracle and package chaos compare halves
		all = slices.DeleteFunc(all, func(r row) bool { return strings.Contains(r.uri, "shardSelector") })
	}
	if testing.Short() {
		all = someRows(all)
	}
	fillCaches(t, ways[1], all)
	for _, uri := range []string{"/api/v1/namespaces/a", "/api/v1/namespaces/a/configmaps/x"} { // up to 1.30 it hears late
		steady.Until(t, "kube-apiserver's own caches", func() error {
			if resp := direct.get(t, uri+"?resourceVersion="+now); resp.status != http.StatusOK {
				return fmt.Errorf("%d: %s", resp.status, resp.body)
			}
			return nil
		})
	}
	t.Logf("%d requests, three ways each", len(all))
	gate := newReadGate()
	for _, r := range all {
		name := fmt.Sprintf("%s %s %s %s", r.id, r.method, r.uri, r.header)
		t.Run(name[:min(len(name), 300)], func(t *testing.T) {
			t.Parallel()
			defer gate.enter(r)()
			if err := r.compare(t, direct, ways...); err != nil {
				t.Error(err)
			}
		})
	}
}

// fillCaches waits until the caches are filled of what is watched. A watch of ten seconds does not wait for that
// for as long as a busy machine needs, and only a cache tells a half apart.
func fillCaches(t *testing.T, d *target, rows []row) {
	watched := map[string]bool{"/api/v1/configmaps": true}
	for _, r := range rows {
		if path, _, _ := strings.Cut(r.uri, "?"); strings.HasPrefix(r.id, "W25") {
			watched[path] = true
		}
	}
	var filling sync.WaitGroup
	gate := make(chan struct{}, 6)
	for uri := range watched {
		for _, form := range leanForms {
			if form == protoType && strings.HasPrefix(uri, "/apis/ex.io/") {
				continue // custom resources have no protobuf
			}
			filling.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				d.warmAs(t, uri, listForm(form))
			})
		}
	}
	filling.Wait()
}

// readGate lets some requests be made at a time. Watches mostly wait, but watchfan lets only 300 reads of a
// user begin at a time.
type readGate struct{ reads, watches chan struct{} }

func newReadGate() readGate { return readGate{make(chan struct{}, 6), make(chan struct{}, 100)} }

// enter waits until r may be sent.
func (g readGate) enter(r row) (leave func()) {
	gate := g.reads
	if strings.Contains(r.uri, "timeoutSeconds") {
		gate = g.watches
	}
	gate <- struct{}{}
	return func() { <-gate }
}

// someRows returns about a hundred requests that are answered at once.
func someRows(rows []row) (some []row) {
	n := 0
	for _, r := range rows {
		if !strings.Contains(r.uri, "timeoutSeconds") && !strings.Contains(r.uri, "99999999") {
			if n%10 == 0 {
				some = append(some, r)
			}
			n++
		}
	}
	return some
}

// check compares the answers to r.
func (r row) check(t *testing.T, theirs *target, ways ...*target) {
	t.Helper()
	if err := r.compare(t, theirs, ways...); err != nil {
		t.Errorf("%s %s: %v", r.uri, r.header, err)
	}
}

// checkAll compares the answers to many requests at once.
func checkAll(t *testing.T, rows []row, theirs *target, ways ...*target) {
	t.Helper()
	var checking sync.WaitGroup
	gate := newReadGate()
	for _, r := range rows {
		checking.Go(func() {
			defer gate.enter(r)()
			r.check(t, theirs, ways...)
		})
	}
	checking.Wait()
}

// compressedWatch has the headers of a watch that a client with gzip gets here and, up to 1.36, not
// from kube-apiserver.
var compressedWatch = map[string][]string{"Content-Encoding": {"gzip"}, "Vary": {"Accept-Encoding"}}

// oneLong is for requests with long URIs. watchfan lets a client have one of them under way, and another
// wait for 15 seconds, which a busy machine may need for a few.
var oneLong sync.Mutex

const longURI = 4 << 10

// compare sends r to kube-apiserver and all ways through watchfan, and returns how the answers differ.
// Only this may differ:
//
//   - headers: Date; Audit-Id where the client sent none; X-Kubernetes-Pf-*, which name a queue of
//     kube-apiserver's; whether the body has a length or chunks;
//   - how a body is compressed and, for a watch (N21), whether it is;
//   - the resourceVersion of a list, of a bookmark and in a continue token, and the "current" one
//     in a message;
//   - the slash that begins the key in a continue token. Pages from etcd have none, and those from
//     a cache, which kube-apiserver serves since 1.31, have one. Every kube-apiserver takes both;
//   - whether a bookmark comes before a watch's deadline;
//   - ages in the cells of tables;
//   - managedFields, which a client does not get here if it says so;
//   - the order of maps in CBOR.
func (r row) compare(t *testing.T, theirs *target, ways ...*target) error {
	answers, errs := make([]response, 1+len(ways)), make([]error, 1+len(ways))
	var wg sync.WaitGroup
	for i, way := range append([]*target{theirs}, ways...) {
		wg.Go(func() {
			if len(r.uri) > longURI {
				oneLong.Lock()
				defer oneLong.Unlock()
			}
			answers[i], errs[i] = way.try(cmp.Or(r.method, http.MethodGet), r.uri, r.header, r.body)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, way := range ways {
		if err := r.differ(t, answers[1+i], answers[0]); err != nil {
			errs = append(errs, fmt.Errorf("through %s: %w", way.name, err))
		}
	}
	return errors.Join(errs...)
}

// differ returns how an answer differs from kube-apiserver's.
func (r row) differ(t *testing.T, got, want response) error {
	if r.cached && !proxytest.FromCache(got.header) {
		return errors.New("passed through to kube-apiserver")
	}
	if strings.HasPrefix(r.id, "C25") && max(got.status, want.status) == http.StatusServiceUnavailable {
		return nil // it was over before it began: up to 1.30 kube-apiserver answers 200 or 503, as it happens
	}
	if got.status != want.status {
		return fmt.Errorf("status %d, want %d\n%.500s\n%.500s", got.status, want.status, got.body, want.body)
	}
	for _, h := range []string{"Content-Type", "Warning", "Retry-After", "Vary", "Content-Encoding", "Cache-Control",
		"X-Content-Type-Options", "Www-Authenticate", "Allow", "Location"} {
		g, w := got.header.Values(h), want.header.Values(h)
		if r.id == "N21" && compressedWatch[h] != nil {
			w = compressedWatch[h]
		}
		if !slices.Equal(g, w) {
			return fmt.Errorf("%s: %q, want %q (status %d)", h, g, w, got.status)
		}
	}
	if asked := r.header.Get("Audit-Id"); got.header.Get("Audit-Id") == "" || asked != "" &&
		got.header.Get("Audit-Id") != asked {
		return fmt.Errorf("Audit-Id %q, want %q", got.header.Get("Audit-Id"), asked)
	}
	if proxytest.FromCache(got.header) && r.asker != (asker{}) && !strings.HasPrefix(want.header.Get("Content-Type"), "text/plain") {
		less, err := r.asker.less(plainBody(t, want))
		if err != nil {
			return err
		}
		want = response{want.status, http.Header{"Content-Type": want.header["Content-Type"]}, less}
	}
	g, w := r.normal(got), r.normal(want)
	if !bytes.Equal(g, w) {
		i := 0
		for i < len(g) && i < len(w) && g[i] == w[i] {
			i++
		}
		from := max(0, i-100)
		return fmt.Errorf("bodies of %d and %d bytes differ at %d:\n got …%q\nwant …%q", len(g), len(w), i,
			g[from:min(len(g), i+200)], w[from:min(len(w), i+200)])
	}
	return nil
}

var (
	listHead = regexp.MustCompile(
		`^(\{\s*"kind":\s?"\w+(?:List|Table)?",\s*"apiVersion":\s?"[^"]+",\s*` +
			`"metadata":\s?\{\s*"resourceVersion":\s?)"\d+"`)
	listTail  = regexp.MustCompile(`("kind":\s?"\w+List",\s*"metadata":\s?\{.*"resourceVersion":\s?)"\d+"([\s}]*)$`)
	listYAML  = regexp.MustCompile(`(\nmetadata:\n(?:  continue: .*\n)?  resourceVersion: )"\d+"\n$`)
	continues = regexp.MustCompile(`"continue":\s?"([^"]+)"`)
	bookmark  = regexp.MustCompile(`^(\{"type":"BOOKMARK",.*"resourceVersion":)"\d+"`)
	currentRV = regexp.MustCompile(`current: \d+`)
	// of a token
	tokenVersion = regexp.MustCompile(`"rv":\d+`)
	ages         = regexp.MustCompile(`"(\d+[dhms])+"|"<unknown>"`)
	// For a list, whose metadata comes first.
	protoVersion = regexp.MustCompile(`^k8s\x00(?s:.)*?\x0a\x00\x12.\d{1,9}\x1a`)
)

// normal returns the body without what may differ: the list's own resourceVersion, those of
// bookmarks, ages, and the time of a review.
func (r row) normal(resp response) []byte {
	b := resp.body
	if resp.header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(z)
		}
		if err != nil {
			return []byte(err.Error())
		}
	}
	switch kind := resp.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, jsonType):
		if bytes.Contains(b[:min(len(b), 40)], []byte("List")) || bytes.Contains(b[:min(len(b), 40)], []byte("Table")) {
			b = listHead.ReplaceAll(b, []byte(`$1"RV"`))
		} else {
			b = listTail.ReplaceAll(b, []byte(`$1"RV"$2`))
		}
		b = continues.ReplaceAllFunc(b, func(m []byte) []byte {
			raw, err := base64.RawURLEncoding.DecodeString(string(continues.FindSubmatch(m)[1]))
			var tok map[string]any
			if err == nil && json.Unmarshal(raw, &tok) == nil {
				tok["rv"] = "RV"
				tok["start"] = strings.TrimPrefix(fmt.Sprint(tok["start"]), "/")
			}
			return fmt.Appendf(nil, `"continue":%v`, tok)
		})
		b = normalLines(b)
		b = currentRV.ReplaceAll(b, []byte("current: N"))
		if bytes.HasPrefix(b, []byte(`{"kind":"SelfSubjectReview"`)) {
			b = createdAt.ReplaceAll(b, nil) // of the review, which each server makes when it is asked
		}
		if strings.Contains(r.header.Get("Accept"), "as=Table") {
			b = ages.ReplaceAll(b, []byte(`"AGE"`))
			b = regexp.MustCompile(`("resourceVersion":)"\d+"(,"annotations":\{"k8s.io/initial)`).ReplaceAll(b,
				[]byte(`$1"RV"$2`))
		}
	case strings.HasPrefix(kind, cborType):
		b = normalCBOR(b)
	case strings.HasPrefix(kind, "application/yaml"):
		b = listYAML.ReplaceAll(b, []byte(`$1"RV"`))
	case strings.HasPrefix(kind, protoType):
		if strings.HasSuffix(kind, "stream=watch") {
			b = normalFrames(b)
		}
		if protoVersion.Match(b) {
			b = normalList(b)
		}
		b = currentRV.ReplaceAll(b, []byte("current: N"))
	}
	return b
}

// normalList is normal for a list in protobuf, where lengths depend on resourceVersions and tokens.
func normalList(b []byte) []byte {
	var body runtime.Unknown
	if err := body.Unmarshal(bytes.TrimPrefix(b, []byte("k8s\x00"))); err != nil {
		return []byte(err.Error())
	}
	var meta metav1.ListMeta
	head, rest := cutMetadata(body.Raw)
	if err := meta.Unmarshal(head); err != nil {
		return []byte(err.Error())
	}
	raw, _ := base64.RawURLEncoding.DecodeString(meta.Continue)
	meta.Continue = string(tokenVersion.ReplaceAll(bytes.Replace(raw, []byte(`"start":"/`), []byte(`"start":"`), 1),
		[]byte(`"rv":RV`)))
	meta.ResourceVersion = "RV"
	return fmt.Appendf(nil, "%s %s %s", body.TypeMeta, &meta, rest)
}

// cutMetadata divides a message behind its first field, the metadata.
func cutMetadata(raw []byte) (metadata, rest []byte) {
	_, _, tag := protowire.ConsumeTag(raw)
	if tag < 0 {
		return nil, raw
	}
	metadata, n := protowire.ConsumeBytes(raw[tag:])
	if n < 0 {
		return nil, raw
	}
	return metadata, raw[tag+n:]
}

// normalLines is normal for a watch in JSON. The end of the initial events is told once, though
// kube-apiserver may tell it again before the deadline.
func normalLines(b []byte) (normal []byte) {
	ended := false
	for line := range bytes.Lines(b) {
		if bookmark.Match(line) {
			if ended || !bytes.Contains(line, []byte("k8s.io/initial-events-end")) {
				continue // it comes before the deadline
			}
			ended, line = true, bookmark.ReplaceAll(line, []byte(`$1"RV"`))
		}
		normal = append(normal, line...)
	}
	return normal
}

// normalFrames is normalLines for a watch in protobuf.
func normalFrames(b []byte) []byte {
	var events [][]byte
	ended := false
	for len(b) >= 4 {
		n := min(4+int(bigendian.BigEndian.Uint32(b)), len(b))
		event := normalBookmark(b[:n])
		if bookmark := !bytes.Equal(event, b[:n]); !bookmark || !ended {
			events = append(events, event)
			ended = ended || bookmark && event != nil
		}
		b = b[n:]
	}
	return bytes.Join(append(events, b), nil)
}

// normalBookmark returns an event in protobuf unchanged. It returns nothing for a bookmark before the
// deadline, and the one that ends the initial events without what depends on its resourceVersion.
func normalBookmark(frame []byte) []byte {
	var e metav1.WatchEvent
	var object runtime.Unknown
	var meta metav1.ObjectMeta
	if e.Unmarshal(frame[4:]) != nil || e.Type != "BOOKMARK" ||
		object.Unmarshal(bytes.TrimPrefix(e.Object.Raw, []byte("k8s\x00"))) != nil {
		return frame
	}
	head, rest := cutMetadata(object.Raw)
	if meta.Unmarshal(head) != nil {
		return frame
	}
	if meta.Annotations[metav1.InitialEventsAnnotationKey] == "" { // a DaemonSet's may have others
		return nil
	}
	meta.ResourceVersion = "RV"
	return fmt.Appendf(nil, "%s %s %s %s", e.Type, object.TypeMeta, &meta, rest)
}
