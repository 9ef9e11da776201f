package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestFairness: one user lists everything on 20 connections, with another selector each time, so
// that each list is searched and compressed anew. Meanwhile another user's short lists are served,
// many for each of the long ones. In order of arrival it would be about one for one.
func TestFairness(t *testing.T) {
	t.Parallel()
	c := privateCluster(t)
	p := plainWatchfan(t, c)
	p.waitReady(t)
	admin := p.secure(t, c.token(t, "admin"))
	create := func(namespace, name string, size int) {
		words := make([]string, size/8)
		for i := range words {
			words[i] = fmt.Sprintf("%07x", rand.Uint32()>>4)
		}
		body := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"name":%q}},"data":{"x":%q}}`, name, name,
			strings.Join(words, " "))
		if resp, err := admin.try(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", nil,
			body); err != nil || resp.status != http.StatusCreated {
			t.Fatalf("create %s: %d, %v", name, resp.status, err)
		}
	}
	for i := range 400 {
		create("default", fmt.Sprint("long-", i), 40_000)
	}
	create("kube-public", "short", 40)

	const short = "/api/v1/namespaces/kube-public/configmaps?resourceVersion=0"
	other := p.secure(t, c.token(t, "reader"))
	list := func(d *target, uri string, header http.Header) (ok bool) {
		resp, err := d.try(http.MethodGet, uri, header, "")
		if err != nil || resp.status != http.StatusOK {
			t.Errorf("%s: %d, %v", uri, resp.status, err)
			return false
		}
		return true
	}
	if !list(other, short, nil) {
		t.FailNow()
	}
	var lists atomic.Int64
	var greedy sync.WaitGroup
	done := make(chan struct{})
	for range 20 {
		greedy.Go(func() {
			d := p.secure(t, c.token(t, "admin"))
			for {
				select {
				case <-done:
					return
				default:
				}
				if !list(d, fmt.Sprint("/api/v1/configmaps?resourceVersion=0&labelSelector=name!%3Dx", rand.Uint32()),
					http.Header{"Accept-Encoding": {"gzip"}}) {
					return
				}
				lists.Add(1)
			}
		})
	}
	eventually(t, time.Minute, "lists of the greedy user", func() error {
		if n := lists.Load(); n < 20 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	before, served := lists.Load(), 0
	for lists.Load()-before < 20 && served < 2000 {
		if !list(other, short, nil) {
			break
		}
		served++
	}
	theirs := lists.Load() - before
	close(done)
	greedy.Wait()
	t.Logf("%d short lists for %d of the greedy user", served, theirs)
	if int64(served) < 3*max(theirs, 1) { // in turns without regard for users it would be 1/20
		t.Errorf("%d short lists were served while the greedy user had %d long ones", served, theirs)
	}
	if n := p.admin(t).metric(t, "watchfan_read_seat_waits_total"); n == 0 {
		t.Error("nobody waited for a seat")
	}
}
