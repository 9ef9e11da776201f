package framing_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watchfan/watchfan/framing"
)

func TestListEnvelope(t *testing.T) {
	f := func(empty string, m framing.ListMeta, want string) {
		t.Helper()
		form, _, err := framing.ParseListForm(framing.JSON, []byte(empty))
		if err != nil {
			t.Fatal(err)
		}
		head, tail := form.Envelope(m, 0, 0)
		if got := string(head) + string(tail); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	const builtIn = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}` + "\n"
	const metadata = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",` +
		`"metadata":{"resourceVersion":"7"},"items":null}` + "\n"
	const custom = `{"apiVersion":"ex.io/v1","items":[],"kind":"FooList","metadata":{"continue":"",` +
		`"resourceVersion":"7"}}` + "\n"
	f(builtIn, framing.ListMeta{ResourceVersion: 1 << 63},
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9223372036854775808"},"items":[]}`+"\n")
	f(builtIn, framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2=", RemainingItemCount: 3},
		`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"8","continue":"eyJ2=",`+
			`"remainingItemCount":3},"items":[]}`+"\n")
	f(metadata, framing.ListMeta{ResourceVersion: 8},
		`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"8"},`+
			`"items":null}`+"\n")
	f(custom, framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2="},
		`{"apiVersion":"ex.io/v1","items":[],"kind":"FooList","metadata":{"continue":"eyJ2=","resourceVersion":"8"}}`+
			"\n")
	f(custom, framing.ListMeta{ResourceVersion: 8, Continue: "eyJ2=", RemainingItemCount: 3},
		`{"apiVersion":"ex.io/v1","items":[],"kind":"FooList","metadata":{"continue":"eyJ2=","remainingItemCount":3,`+
			`"resourceVersion":"8"}}`+"\n")
}

// A form that could not be reproduced is refused and not changed.
func TestParseListFormErrors(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		if _, _, err := framing.ParseListForm(framing.JSON, []byte(body)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", body, err, want)
		}
	}
	f(``, "read list")
	f(`{}`, "resourceVersion")
	f(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":""},"items":[]}`+"\n", "resourceVersion")
	// No newline.
	f(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`, "unknown form")
	f(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","shardInfo":{}},"items":[]}`+"\n",
		"unknown form")
	f(`{"kind":"PodList","apiVersion":"v1","items":[],"metadata":{"resourceVersion":"7"}}`+"\n", "unknown form")
	f(`{"kind": "PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n", "unknown form")
}

func TestListReader(t *testing.T) {
	f := func(body, meta string, want ...string) {
		t.Helper()
		r := framing.NewListReader(framing.JSON, iotest.HalfReader(strings.NewReader(body)))
		var got []string
		for {
			item, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", body, err)
				return
			}
			got = append(got, string(item))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: items %q, want %q", body, got, want)
		}
		m, err := r.Metadata()
		text, _ := json.Marshal(m)
		if err != nil {
			text = []byte(err.Error())
		}
		if string(text) != meta {
			t.Errorf("%s: metadata %s, want %s", body, text, meta)
		}
	}
	const seven = `{"ResourceVersion":7,"Continue":"","RemainingItemCount":0,"ShardSelector":""}`
	f(`{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":[2]}]}`, seven, `{"a":1}`, `{"b":[2]}`)
	f(`{"items":[{"a":1}],"metadata":{"continue":"c","resourceVersion":"7"}}`+"\n",
		`{"ResourceVersion":7,"Continue":"c","RemainingItemCount":0,"ShardSelector":""}`, `{"a":1}`)
	f(`{"metadata":{"resourceVersion":"7","continue":"c","remainingItemCount":3},"items":[]}`,
		`{"ResourceVersion":7,"Continue":"c","RemainingItemCount":3,"ShardSelector":""}`)
	f(` { "kind" : "L" , "items" : [ 1 , [ ] ] , "metadata" : { "resourceVersion" : "7" } } `, seven, `1`, `[ ]`)
	f(`{"items":null,"metadata":{"resourceVersion":"7"}}`, seven)
	f(`{"metadata":{"resourceVersion":"7"}}`, seven)
	f(`{"items":[]}`, `read list: resourceVersion ""`)
}

func TestListReaderErrors(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r := framing.NewListReader(framing.JSON, strings.NewReader(body))
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", body, err, want)
		}
	}
	f(``, "unexpected EOF")
	f(`[]`, "expected an object")
	f(`{"items":{}}`, "expected items")
	f(`{"items":[],"metadata":1}`, "cannot unmarshal")
	f(`{"items":[]}{}`, "data after the list")
	f(`{"items":[1 2]}`, "read list")
}

func FuzzListReader(f *testing.F) {
	for _, c := range readTestdata(f) {
		for _, section := range []string{"empty", "list", "page"} {
			f.Add(c.bytes(section), uint64(1))
		}
	}
	f.Add([]byte(` { "items" : [ 1 , [ ] ] , "metadata" : null } `), uint64(2))
	f.Add([]byte(`{"items":[`+nestedJSON(`[{"a":`, "1", "}]", 100)+`]}`), uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		r := framing.NewListReader(framing.JSON, &uneven{body, rand.New(rand.NewPCG(seed, 0))})
		var items []string
		var err error
		for {
			var item []byte
			if item, err = r.Next(); err != nil {
				break
			}
			items = append(items, string(item))
		}
		if !jsontext.Value(body).IsValid() {
			return
		}
		var list map[string]json.RawMessage
		var want []json.RawMessage
		var meta struct {
			ResourceVersion, Continue string
			RemainingItemCount        int64
		}
		ok := json.Unmarshal(body, &list) == nil && list != nil
		if raw, found := list["items"]; ok && found {
			ok = json.Unmarshal(raw, &want) == nil
		}
		if raw, found := list["metadata"]; ok && found {
			ok = json.Unmarshal(raw, &meta) == nil
		}
		if ok != (err == io.EOF) {
			t.Fatalf("ended with %v, but the twin says ok=%v", err, ok)
		}
		if !ok {
			return
		}
		if !slices.EqualFunc(items, want, func(a string, b json.RawMessage) bool { return a == string(b) }) {
			t.Fatalf("items %q, want %q", items, want)
		}
		if m, err := r.Metadata(); err == nil &&
			(m.Continue != meta.Continue || m.RemainingItemCount != meta.RemainingItemCount) {
			t.Fatalf("metadata %+v, want %+v", m, meta)
		}
	})
}

// FuzzListForm: a form that is accepted reproduces the list that it was taken from.
func FuzzListForm(f *testing.F) {
	for _, c := range readTestdata(f) {
		for _, section := range []string{"empty", "list", "page"} {
			f.Add(c.bytes(section))
		}
	}
	f.Add(
		[]byte(`{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"x",` +
			`"resourceVersion":"7"}}]}` + "\n"))
	s := framing.NewScanner(framing.JSON, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		form, meta, err := framing.ParseListForm(framing.JSON, body)
		if err != nil || !jsontext.Value(body).IsValid() {
			return
		}
		typeMeta := form.TypeMeta("Kind")
		var objects []*framing.Object
		r := framing.NewListReader(framing.JSON, bytes.NewReader(body))
		for {
			raw, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			o, err := s.Item(raw, typeMeta)
			if err != nil || typeMeta != nil &&
				(bytes.Contains(raw, []byte(`"kind"`)) || bytes.Contains(raw, []byte(`"apiVersion"`))) {
				return
			}
			objects = append(objects, o)
			checkFrame(t, "added", o.Frame(framing.Added),
				slices.Concat([]byte(`{"type":"ADDED","object":{`), typeMeta, raw[1:], []byte("}\n")))
		}
		want := jsontext.Value(bytes.Clone(body))
		if want.Compact() != nil || string(want) != strings.TrimSuffix(string(body), "\n") {
			return // no encoder writes spaces
		}
		if got := assemble(form, meta, objects); !bytes.Equal(got, body) {
			t.Fatalf("list %s\nwant %s", got, body)
		}
	})
}
