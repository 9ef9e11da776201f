//go:build linux

package main

import (
	"io"
	"net"
	"testing"
)

// TestSelectedBy: a selection's clients must get the changes that its selector selects.
func TestSelectedBy(t *testing.T) {
	w := &changes{objects: 20, log: []change{
		{1, 0, false, true}, {2, 1, false, false}, {3, 11, true, false}, {4, 3, true, true},
	}}
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
	f(1, 1, 3, 4) // the flipped label
	f(13, 2, 3)   // group 1
	f(37, 4)      // object 3
	f(57)         // object 5
}

func TestSpread(t *testing.T) {
	if got := (spread{conns: []int{100, 90, 110}}).awayMost(); got != 0.1 {
		t.Errorf("got %v, want 0.1", got)
	}
}

// TestBalancer: the balancer connects clients to replicas that are ready, and to no other.
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
