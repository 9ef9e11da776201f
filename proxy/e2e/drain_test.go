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

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// drainTest is many watches with different selections, half of them with bookmarks, by tokens and
// without, a third of them with gzip.
type drainTest struct {
	watches    int
	selections []selection
	first      uint64 // resourceVersion from which the watches begin
}

// open begins all watches, the i-th by one of the ways and from the i-th resourceVersion.
func (d *drainTest) open(t *testing.T, ways []*target, from func(i int) uint64) []*recording {
	t.Helper()
	streams := make([]*recording, d.watches)
	var opening sync.WaitGroup
	gate := make(chan struct{}, 16)
	for i := range streams {
		gate <- struct{}{}
		opening.Go(func() {
			defer func() { <-gate }()
			way := ways[i%5%len(ways)]
			if i%3 == 0 {
				way = way.zipped()
			}
			s := d.selections[i%len(d.selections)]
			uri := fmt.Sprintf("%s?watch=1&%s&resourceVersion=%d&allowWatchBookmarks=%v", s.path,
				s.query, from(i), d.bookmarks(i))
			r, err := way.tryWatch(t.Context(), uri, nil)
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

// bookmarks reports whether the i-th watch asks for bookmarks.
func (d *drainTest) bookmarks(i int) bool { return i%2 == 0 }

// checkEnds waits for the end of each watch, checks how it came, and returns the last resourceVersion of
// each.
func (d *drainTest) checkEnds(t *testing.T, streams []*recording) []uint64 {
	t.Helper()
	last := make([]uint64, d.watches)
	for i, s := range streams {
		events := s.finish(t)
		last[i] = d.first
		if len(events) > 0 {
			last[i] = events[len(events)-1].rv
		}
		if bookmark := len(events) > 0 && events[len(events)-1].typ == "BOOKMARK"; bookmark != d.bookmarks(i) {
			t.Errorf("%s ended behind %s", s.uri, format(events[max(0, len(events)-1):]))
		}
	}
	return last
}

// checkResumed compares what the i-th watch and the one that resumed it brought together, up to
// resourceVersion end, with the model.
func (d *drainTest) checkResumed(t *testing.T, m *model, i int, before, after *recording, end uint64) {
	t.Helper()
	// The last deletions may come after the reference was read, or be missing in it.
	want := upTo(t, m.behind(d.selections[i%len(d.selections)].filter, d.first), end)
	got := func() (lines []string) {
		for _, e := range append(before.objects(), after.objects()...) {
			lines = append(lines, e.line)
		}
		return upTo(t, lines, end)
	}
	steady.Until(t, "end of "+after.uri, func() error {
		if n := len(got()); after.open() && n < len(want) {
			return fmt.Errorf("%d events, want %d", n, len(want))
		}
		return nil
	})
	after.stop()
	if got := got(); !slices.Equal(got, want) {
		n := 0
		for n < min(len(got), len(want)) && got[n] == want[n] {
			n++
		}
		t.Errorf("%s and then %s: %d events, want %d; they differ at %d", before.uri, after.uri, len(got), len(want), n)
	}
	if slices.ContainsFunc(after.all(), func(e event) bool { return e.typ == "ERROR" }) {
		t.Errorf("%s brought an ERROR", after.uri)
	}
}

// TestDrain: after SIGTERM watches end, each properly and, if it has bookmarks, behind one. The connection
// ends with its watch. A client that resumes at a new watchfan misses nothing and receives nothing twice.
func TestDrain(t *testing.T) {
	parallel(t)
	c := privateCluster(t)
	p := privateWatchfan(t, c, "--drain-duration=3s", "--shutdown-timeout=4m")
	next := privateWatchfan(t, c)
	p.waitReady(t)
	next.waitReady(t)
	direct, admin := c.direct(t), p.admin(t)
	ns := []string{"drain", "drain-b"}
	createNamespaces(t, direct, ns...)

	p.plain(t).warmAs(t, "/api/v1/configmaps", jsonType, protoType) // the lanes have all history that is asked for
	reference := direct.follow(t, "/api/v1/configmaps?watch=1&allowWatchBookmarks=true")
	reference.initial(t)
	d := &drainTest{watches: 150}
	d.selections = slices.DeleteFunc(selections(ns), func(s selection) bool { return s.legacy })
	work := &churn{target: direct, namespaces: ns, rate: 15, names: 24, seed: steady.Rand(t).Uint64()}
	stop := work.start(t)
	work.await(t, 50) // of objects that change later
	d.first = work.last.Load()

	ways := p.ways(t, c.token(t, "reader"))
	streams := d.open(t, ways, func(int) uint64 { return d.first })
	protobuf := openProtobuf(t, ways[0], d.first)
	raw, silent := dialPlain(t, p), dialPlain(t, p)
	raw.send(t, "/api/v1/configmaps?watch=1&resourceVersion=0")
	admin.awaitWatchers(t, d.watches+2)
	// A slow drain outlasts kube-apiserver's own history, so next asks for it before.
	early := next.plain(t).watch(t, fmt.Sprintf("/api/v1/configmaps?watch=1&labelSelector=app&resourceVersion=%d", d.first))
	defer early.stop()

	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	checkDraining(t, admin, d.watches)
	// Only a connection that has not brought a request yet may still bring one.
	silent.send(t, "/version")
	if answer := silent.rest(t); !strings.HasPrefix(answer, "HTTP/1.1 200 ") ||
		!strings.Contains(answer, "\r\nConnection: close\r\n") {
		t.Errorf("a request while draining was answered %.300q", answer)
	}
	if answer := raw.rest(t); !strings.HasSuffix(answer, "\r\n0\r\n\r\n") {
		t.Errorf("a watch's connection ended with %.100q", answer[max(0, len(answer)-100):])
	}
	if frames := protobuf(); !strings.Contains(frames[len(frames)-1], "BOOKMARK") {
		t.Errorf("the last of %d protobuf frames is %.300q", len(frames), frames[len(frames)-1])
	}
	last := d.checkEnds(t, streams)
	p.awaitExit(t)

	onward := next.ways(t, c.token(t, "reader"))
	resumed := d.open(t, onward, func(i int) uint64 { return last[i] })
	stop()
	work.check(t)
	end := work.last.Load()
	m, err := newModel(reference.until(t, end))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resumed {
		d.checkResumed(t, m, i, streams[i], r, end)
	}
}

// checkDraining waits until some of n watches have ended, and checks what watchfan says meanwhile.
func checkDraining(t *testing.T, admin *target, n int) {
	t.Helper()
	steady.Until(t, "drain", func() error {
		if ended := admin.metric(t, "watchfan_watches_ended_total", `reason="shutdown"`); ended == 0 ||
			ended > float64(n) {
			return fmt.Errorf("%v watches have ended", ended)
		}
		return nil
	})
	if resp := admin.get(t, "/readyz"); resp.status != http.StatusInternalServerError ||
		!strings.Contains(string(resp.body), "[-]shutdown failed") {
		t.Errorf("/readyz while draining: %d %s", resp.status, resp.body)
	}
	if n := admin.metric(t, "watchfan_draining"); n != 1 {
		t.Errorf("watchfan_draining is %v while draining", n)
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
	resp, err := d.open(t.Context(), http.MethodGet,
		fmt.Sprintf("/api/v1/configmaps?watch=1&resourceVersion=%d&allowWatchBookmarks=true", rv),
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
	_ = c.SetReadDeadline(time.Now().Add(steady.Patience))
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(all), err)
	}
	return string(all)
}
