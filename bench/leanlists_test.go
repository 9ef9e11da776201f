//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leanEvents returns initial events of n objects, with managed fields or without.
func leanEvents(n int, managed, end bool) string {
	var body strings.Builder
	for i := range n {
		field := ""
		if managed {
			field = `,"managedFields":[{"manager":"kubelet"}]`
		}
		fmt.Fprintf(&body, `{"type":"ADDED","object":{"metadata":{"name":"%d"%s}}}`+"\n", i, field)
	}
	if end {
		body.WriteString(`{"type":"BOOKMARK","object":{"metadata":{` +
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n")
	}
	return body.String()
}

// serveLeanEvents serves initial events, compressed if the client wants that. With end the answer
// ends after them.
func serveLeanEvents(t *testing.T, body string, end bool) endpoint {
	return serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		stream := []byte(body)
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			stream = flushed(t, stream)
		}
		for p := stream; len(p) > 0; p = p[min(len(p), 1000):] {
			w.Write(p[:min(len(p), 1000)])
			w.(http.Flusher).Flush()
		}
		if !end {
			<-r.Context().Done()
		}
	})
}

// watchCase returns a watch with initial events.
func watchCase(encoding string, lean bool) leanListCase {
	return leanListCase{form{"json", encoding, "0", http11, lean}, true}
}

// TestInitialWatch: a watch is read up to the end of its initial events, compressed or not.
func TestInitialWatch(t *testing.T) {
	const objects = 200
	for _, lean := range []bool{false, true} {
		for _, encoding := range []string{"identity", "gzip"} {
			body := leanEvents(objects, !lean, true)
			l, err := watchCase(encoding, lean).connect(serveLeanEvents(t, body, false), objects)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.close)
			want := body
			if encoding == "gzip" {
				want = string(flushed(t, []byte(body)))
			}
			var got bytes.Buffer
			took, err := l.list(&got)
			compressed := l.(*initialWatch).compressed()
			if err != nil || took <= 0 || got.String() != want || compressed != (encoding == "gzip") {
				t.Errorf("lean=%t, %s: %d bytes, want %d, compressed %t, %v", lean, encoding, got.Len(), len(want), compressed, err)
			}
		}
	}
}

// TestInitialWatchErrors: an incomplete or wrong answer is an error.
func TestInitialWatchErrors(t *testing.T) {
	const objects = 20
	f := func(want string, e endpoint, lean bool) {
		t.Helper()
		l, err := watchCase("identity", lean).connect(e, objects)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.close)
		if _, err := l.list(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(errNotLean.Error(), serveLeanEvents(t, leanEvents(objects, true, true), false), true)
	f("19 objects came, want 20", serveLeanEvents(t, leanEvents(objects-1, false, true), false), true)
	f("20 objects came: "+errEnded.Error(), serveLeanEvents(t, leanEvents(objects, true, false), true), false)
	f("unexpected event", serveLeanEvents(t, `{"type":"ERROR"}`+"\n", false), false)
	refuse := func(w http.ResponseWriter, r *http.Request) { http.Error(w, "later", http.StatusTooManyRequests) }
	f("429 Too Many Requests: later", serve(t, false, refuse), false)
}

// TestLeanListCheck: a list must have all pods, with the fields of both managers or without any.
func TestLeanListCheck(t *testing.T) {
	body := func(f form, pods, managers int) io.Reader {
		list := &corev1.PodList{Items: make([]corev1.Pod, pods)}
		for i := range list.Items {
			list.Items[i].ManagedFields = make([]metav1.ManagedFieldsEntry, managers)
		}
		return bytes.NewReader(encodePods(t, f, list))
	}
	for _, c := range leanListCases {
		if c.watch {
			continue
		}
		right := 2
		if c.lean {
			right = 0
		}
		if err := c.check(body(c.form, 3, right), 3); err != nil {
			t.Errorf("%v: %v", c.form, err)
		}
		if err := c.check(body(c.form, 2, right), 3); err == nil || !strings.Contains(err.Error(), "list has 2 pods") {
			t.Errorf("%v: a list that is too short: %v", c.form, err)
		}
		if err := c.check(body(c.form, 3, 1), 3); err == nil || !strings.Contains(err.Error(), "the fields of 1 managers") {
			t.Errorf("%v: one manager: %v", c.form, err)
		}
	}
}

func TestLeanListsReport(t *testing.T) {
	s := leanListsSection(defaults())
	for _, c := range leanListCases {
		size := 20e6
		if c.lean {
			size = 12.5e6
		}
		s.add(sample{peer: watchfanTLS, axes: c.axes(), metrics: []metric{{unitRequestBytes, size}, {unitRequestCPU, 1e6}}})
	}
	wantInTables(t, s, "watchfan/tls watchlist json gzip lean 12.5 1.00",
		"bytes, lean / whole: list, protobuf, identity 0.62 ≤ 0.65 met",
		"bytes, lean / whole: watchlist, json, gzip 0.62 ≤ 0.60 MISSED")
}
