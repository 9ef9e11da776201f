//go:build linux

package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestAuditCount(t *testing.T) {
	a, err := newAuditLog(t.TempDir(), "configmaps", rollingAgent)
	if err != nil {
		t.Fatal(err)
	}
	const watchfan = `"userAgent":"watchfan/v1 (linux/amd64)"`
	add := func(lines string) {
		t.Helper()
		f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, lines); err != nil {
			t.Fatal(err)
		}
	}
	f := func(want map[string]int) {
		t.Helper()
		got, err := a.count()
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range auditKinds {
			if got[kind] != want[kind] {
				t.Errorf("%d %s, want %d", got[kind], kind, want[kind])
			}
		}
	}
	add(`{"verb":"watch","requestURI":"/api/v1/configmaps?sendInitialEvents=true&timeoutSeconds=345&watch=true",` + watchfan + "}\n" +
		`{"verb":"watch","requestURI":"/api/v1/configmaps?resourceVersion=5&timeoutSeconds=345&watch=true",` + watchfan + "}\n" +
		`{"verb":"watch","requestURI":"/api/v1/configmaps?resourceVersion=5&timeoutSeconds=3&watch=true",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/namespaces/-/configmaps?limit=1",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps?fieldSelector=metadata.name%3D-&resourceVersion=0",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps?limit=500&resourceVersion=5&resourceVersionMatch=Exact",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps","userAgent":"kube-apiserver/v1"}` + "\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps","userAgent":"rolling-client"}` + "\n" + `{"verb":"watch","requestURI":"/api/v1/conf`)
	f(map[string]int{"lane starts": 1, "lane watches": 1, "replays": 1, "versions": 2, "proof lists": 1, "exact lists": 1, "clients' lists": 1})
	add(`igmaps?watch=1","userAgent":"rolling-client"}` + "\n")
	f(map[string]int{"clients' watches": 1})
	f(nil)
	if _, err := newAuditLog(filepath.Join(t.TempDir(), "none"), "x", ""); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

// The report of storms counts each kind of request, and each once.
func TestStormUpstream(t *testing.T) {
	requests := make(map[string]int)
	for i, kind := range auditKinds {
		requests[kind] = 1 << i
	}
	sum := 0.0
	for _, m := range upstream(requests) {
		sum += m.value
	}
	if want := 1<<len(auditKinds) - 1; sum != float64(want) {
		t.Errorf("the kinds add up to %b, want %b", int(sum), want)
	}
}

// What a selection's clients must get is what its selector selects.
func TestSelectedBy(t *testing.T) {
	w := &changes{objects: 20, log: []change{{1, 0, false, true}, {2, 1, false, false}, {3, 11, true, false}, {4, 3, true, true}}}
	f := func(client int, want ...uint64) {
		t.Helper()
		s := w.selection(client)
		got := w.selectedBy(s)
		if len(got) != len(want) {
			t.Fatalf("client %d, %q: %v, want %v", client, s.query, got, want)
		}
		for i, c := range got {
			if c.rv != want[i] {
				t.Errorf("client %d, %q: %v, want %v", client, s.query, got, want)
			}
		}
	}
	f(0, 1, 2, 3, 4)
	f(1, 1, 3, 4) // the label that comes and goes
	f(13, 2, 3)   // group 1
	f(37, 4)      // object 3
	f(57)         // object 5
}

func TestSpread(t *testing.T) {
	if got := (spread{conns: []int{100, 90, 110}}).awayMost(); got != 0.1 {
		t.Errorf("got %v, want 0.1", got)
	}
}

// The balancer joins connections to replicas that are ready, and to no other.
func TestBalancer(t *testing.T) {
	b, err := newBalancer()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	ready, other := &replica{secure: echo.Addr().String(), ready: true}, &replica{secure: "127.0.0.1:1"}
	b.mu.Lock()
	b.replicas = []*replica{other, ready}
	b.mu.Unlock()
	c, err := net.Dial("tcp", b.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
	if n, m := b.count(ready), b.count(other); n != 1 || m != 0 {
		t.Errorf("%d and %d connections", n, m)
	}
	_ = c.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("behind the end: %q, %v", rest, err)
	}
}
