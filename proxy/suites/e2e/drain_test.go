package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestShutdown: "SIGTERM ends watches with a proper last chunk and exits 0 within the timeout",
// also with a client that does not read and one that never finishes its request. Watches with bookmarks end behind one.
// Package chaos resumes them.
func TestShutdown(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c, "--drain-duration=4s", "--shutdown-timeout=10s")
	p.waitReady(t)
	admin := p.admin(t)
	createNamespaces(t, c.direct(t), "shutdown")
	makeConfigMap(t, c.direct(t), "shutdown", "a", "")
	dial := func(head string) net.Conn {
		conn, err := net.Dial("tcp", p.Ports.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(steady.Patience))
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	rest := func(conn net.Conn) string {
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(all), err)
		}
		return string(all)
	}
	const end = " HTTP/1.1\r\nHost: localhost\r\n\r\n"
	dial("GET /api/v1/configmaps?watch=1&resourceVersion=0" + end) // does not read
	dial("GET /api/v1/conf")
	const configMaps = "/api/v1/namespaces/shutdown/configmaps?watch=1"
	watching := dial("GET " + configMaps + "&resourceVersion=0" + end)
	var streams []*recording
	for _, way := range p.ways(t, c.token(t, "reader")) {
		for _, uri := range []string{configMaps, "/api/v1/namespaces/shutdown/pods?watch=1&resourceVersion=0",
			configMaps + "&allowWatchBookmarks=true", "/apis/apps/v1/namespaces/shutdown/deployments?watch=1"} {
			for range 5 {
				streams = append(streams, way.watch(t, uri), way.zipped().watch(t, uri))
			}
		}
		streams = append(streams, way.watch(t, configMaps, partial)) // passed through
	}
	silent := dial("")
	rest(dial("GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) // so the port has accepted silent
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	steady.Until(t, "drain", func() error {
		if ended := admin.metric(t, "watchfan_watches_ended_total", `reason="shutdown"`); ended == 0 {
			return fmt.Errorf("%v watches have ended", ended)
		}
		return nil
	})
	if resp := admin.get(t, "/readyz"); resp.status != http.StatusInternalServerError ||
		!strings.Contains(string(resp.body), "[-]shutdown failed") || admin.metric(t, "watchfan_draining") != 1 {
		t.Errorf("/readyz while draining: %d %s", resp.status, resp.body)
	}
	// Only a connection that has not brought a request yet may still bring one.
	if _, err := io.WriteString(silent, "GET /version"+end); err != nil {
		t.Fatal(err)
	}
	if answer := rest(silent); !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.Contains(answer, "\r\nConnection: close\r\n") {
		t.Errorf("a request while draining was answered %.300q", answer)
	}
	if answer := rest(watching); !strings.HasSuffix(answer, "\r\n0\r\n\r\n") {
		t.Errorf("a watch's connection ended with %.100q", answer[max(0, len(answer)-100):])
	}
	for _, s := range streams {
		events := s.finish(t)
		if marked := len(events) > 0 && events[len(events)-1].typ == "BOOKMARK"; marked != strings.Contains(s.uri, "Bookmarks") {
			t.Errorf("%s ended behind %s", s.uri, format(events[max(0, len(events)-1):]))
		}
	}
	p.awaitExit(t)
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
