package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// TestDrain: after SIGTERM watches end spread over --drain-duration, each properly and, if it has
// bookmarks, behind one. The connection ends with its watch. A client that resumes at a new
// watchfan misses nothing and receives nothing twice.
func TestDrain(t *testing.T) {
	t.Parallel()
	const watches, drain = 300, 3 * time.Second
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--drain-duration="+drain.String(), "--shutdown-timeout=4m")
	next := privateWatchfan(t, c)
	p.waitReady(t)
	next.waitReady(t)
	direct, admin := c.direct(t), p.admin(t)
	ns := []string{"drain", "drain-b"}
	createNamespaces(t, direct, ns...)

	reference := direct.watch(t, "/api/v1/configmaps?watch=1&allowWatchBookmarks=true")
	initial := reference.initial(t)
	first := initial[len(initial)-1].rv
	work := &churn{target: direct, namespaces: ns, rate: 40, names: 24, seed: *seed}
	stop, written := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() { written <- work.run(stop) }()

	ways := []*target{p.plain(t), p.secure(t, c.token(t, "reader"))}
	onward := []*target{next.plain(t), next.secure(t, c.token(t, "reader"))}
	all := slices.DeleteFunc(selections(ns), func(s selection) bool { return s.legacy })
	uri := func(i int, rv uint64) string {
		s := all[i%len(all)]
		return fmt.Sprintf("%s?watch=1&%s&resourceVersion=%d&allowWatchBookmarks=%v", s.path, s.query, rv, i%2 == 0)
	}
	way := func(ways []*target, i int) *target {
		if i%3 == 0 {
			return ways[i%5%2].zipped()
		}
		return ways[i%5%2]
	}
	open := func(ways []*target, from func(i int) (uint64, string)) []*recording {
		streams := make([]*recording, watches)
		var opening sync.WaitGroup
		gate := make(chan struct{}, 16)
		for i := range streams {
			gate <- struct{}{}
			opening.Go(func() {
				defer func() { <-gate }()
				rv, more := from(i)
				r, err := way(ways, i).tryWatch(t.Context(), uri(i, rv)+more, nil)
				if err != nil {
					t.Errorf("watch %d: %v", i, err)
					return
				}
				streams[i] = r
			})
		}
		opening.Wait()
		if t.Failed() {
			t.FailNow()
		}
		return streams
	}
	streams := open(ways, func(int) (uint64, string) { return first, "" })
	protobuf := openProtobuf(t, ways[0], first)
	raw, silent := dialPlain(t, p), dialPlain(t, p)
	raw.send(t, "/api/v1/configmaps?watch=1&resourceVersion=0")
	admin.awaitWatchers(t, watches+2)

	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the drain", func() error {
		if n := admin.metric(t, "watchfan_watches_ended_total", `reason="shutdown"`); n == 0 || n > watches {
			return fmt.Errorf("%v watches have ended", n)
		}
		return nil
	})
	if resp := admin.get(t, "/readyz"); resp.status != http.StatusInternalServerError || !strings.Contains(string(resp.body), "[-]shutdown failed") {
		t.Errorf("/readyz while draining: %d %s", resp.status, resp.body)
	}
	if n := admin.metric(t, "watchfan_draining"); n != 1 {
		t.Errorf("watchfan_draining is %v while draining", n)
	}
	// Only a connection that has not brought a request yet may still bring one.
	silent.send(t, "/version")
	if answer := silent.rest(t); !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.Contains(answer, "\r\nConnection: close\r\n") {
		t.Errorf("a request while draining was answered %.300q", answer)
	}
	if answer := raw.rest(t); !strings.HasSuffix(answer, "\r\n0\r\n\r\n") {
		t.Errorf("a watch's connection ended with %.100q", answer[max(0, len(answer)-100):])
	}
	if frames := protobuf(); !strings.Contains(frames[len(frames)-1], "BOOKMARK") {
		t.Errorf("the last of %d protobuf frames is %.300q", len(frames), frames[len(frames)-1])
	}

	last := make([]uint64, watches)
	var ends []time.Time
	for i, s := range streams {
		events := s.finish(t, 30*time.Second)
		last[i] = first
		if len(events) > 0 {
			last[i] = events[len(events)-1].rv
		}
		if bookmark := len(events) > 0 && events[len(events)-1].typ == "BOOKMARK"; bookmark != (i%2 == 0) {
			t.Errorf("%s ended behind %s", s.uri, format(events[max(0, len(events)-1):]))
		}
		ends = append(ends, s.ended)
	}
	slices.SortFunc(ends, time.Time.Compare)
	took, half := ends[watches-1].Sub(ends[0]), ends[watches/2].Sub(ends[0])
	t.Logf("%d watches ended within %s, half of them within %s", watches, took, half)
	if took < drain/2 || half < drain/5 {
		t.Errorf("%d watches ended within %s, half of them within %s; want them spread over %s", watches, took, half, drain)
	}
	select {
	case <-p.Exited:
	case <-time.After(hangTime(20 * time.Second)):
		t.Fatal("watchfan has not exited")
	}

	resumed := open(onward, func(i int) (uint64, string) { return last[i], "" })
	close(stop)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	work.check(t, time.Since(began))
	end := work.last.Load()
	eventually(t, 20*time.Second, "the reference", func() error {
		if events := reference.all(); events[len(events)-1].rv < end {
			return fmt.Errorf("is at %d, want %d", events[len(events)-1].rv, end)
		}
		return nil
	})
	m, err := newModel(reference.all())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resumed {
		// The last deletions may come after the reference was read, or be missing in it.
		want := upTo(t, m.behind(all[i%len(all)].filter, first), end)
		got := func() (lines []string) {
			for _, e := range append(streams[i].objects(), r.objects()...) {
				lines = append(lines, e.line)
			}
			return upTo(t, lines, end)
		}
		eventually(t, time.Minute, r.uri, func() error {
			if n := len(got()); r.open() && n < len(want) {
				return fmt.Errorf("%d events, want %d", n, len(want))
			}
			return nil
		})
		r.stop()
		if got := got(); !slices.Equal(got, want) {
			n := 0
			for n < min(len(got), len(want)) && got[n] == want[n] {
				n++
			}
			t.Errorf("%s and then %s: %d events, want %d; they differ at %d", streams[i].uri, r.uri, len(got), len(want), n)
		}
		if slices.ContainsFunc(r.all(), func(e event) bool { return e.typ == "ERROR" }) {
			t.Errorf("%s brought an ERROR", r.uri)
		}
	}
	reference.stop()

	// All clients, also those with selectors, are served from one lane in each encoding.
	// kube-apiserver only sees the lanes start.
	onwards := next.admin(t)
	if n := onwards.metric(t, "watchfan_passthrough_requests_total"); n != 0 {
		t.Errorf("%v requests were passed through:\n%s", n, grepLines(string(onwards.get(t, "/metrics").body), "watchfan_passthrough_requests_total"))
	}
	if log := proxytest.Tail(next.Log, 200); !strings.Contains(log, "Extended history") || !strings.Contains(log, "Decided history") {
		t.Errorf("the new watchfan had all history that was asked for: this test shows less than it should\n%s", log)
	}
}

// upTo returns the events up to resourceVersion rv.
func upTo(t *testing.T, lines []string, rv uint64) []string {
	t.Helper()
	return slices.DeleteFunc(lines, func(line string) bool {
		e, err := parseEvent([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return e.rv > rv
	})
}

// openProtobuf begins a watch in protobuf with bookmarks. frames returns the watch's frames once it
// has ended properly.
func openProtobuf(t *testing.T, d *target, rv uint64) (frames func() []string) {
	t.Helper()
	resp, err := d.open(t.Context(), http.MethodGet, fmt.Sprintf("/api/v1/configmaps?watch=1&resourceVersion=%d&allowWatchBookmarks=true", rv),
		http.Header{"Accept": {"application/vnd.kubernetes.protobuf;stream=watch"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return func() (all []string) {
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for {
			var size [4]byte // big-endian
			_, err := io.ReadFull(in, size[:])
			if err == io.EOF && len(all) > 0 {
				return all
			}
			frame := make([]byte, int(size[0])<<24|int(size[1])<<16|int(size[2])<<8|int(size[3]))
			if err == nil {
				_, err = io.ReadFull(in, frame)
			}
			if err != nil {
				t.Fatalf("protobuf watch, behind %d frames: %v", len(all), err)
			}
			all = append(all, string(frame))
		}
	}
}

// plainConn is a connection to the insecure port.
type plainConn struct{ net.Conn }

func dialPlain(t *testing.T, p *watchfan) plainConn {
	t.Helper()
	conn, err := net.Dial("tcp", p.ports.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return plainConn{conn}
}

func (c plainConn) send(t *testing.T, uri string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+uri+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// rest returns everything that comes until the connection is closed.
func (c plainConn) rest(t *testing.T) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(hangTime(30 * time.Second)))
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(all), err)
	}
	return string(all)
}
