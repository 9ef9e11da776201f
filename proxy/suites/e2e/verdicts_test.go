package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	verdict "github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// watchVerdict waits until watchfan explain has a verdict on the watch of a user agent, and returns it.
func (p *watchfan) watchVerdict(t *testing.T, userAgent string, want verdict.Cause) (got diagnose.WatcherStatus) {
	t.Helper()
	admin := p.admin(t)
	steady.Until(t, fmt.Sprintf("verdict %s on %s", want, userAgent), func() error {
		var list diagnose.WatcherList
		resp := admin.get(t, "/debug/watchers?format=json&userAgent="+userAgent)
		if err := json.Unmarshal(resp.body, &list); err != nil || len(list.Watchers) != 1 {
			return fmt.Errorf("%v: %s", err, resp.body)
		}
		id := fmt.Sprint(list.Watchers[0].ID)
		resp, got = admin.get(t, "/debug/watchers/"+id+"?format=json"), diagnose.WatcherStatus{}
		if err := json.Unmarshal(resp.body, &got); err != nil || got.Verdict == nil || got.Verdict.Reason != want {
			return fmt.Errorf("%v: %s", err, resp.body)
		}
		out := p.command(t, "explain", id)
		if !strings.HasPrefix(out, fmt.Sprintf("Watch %s: %s\n", id, want)) || !strings.Contains(out, got.Verdict.Advice) {
			return fmt.Errorf("watchfan explain says %s", out)
		}
		return nil
	})
	return got
}

// command runs one of watchfan's commands on p, and fails the test unless it succeeds.
func (p *watchfan) command(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), steady.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Cmd.Path,
		append(args, "--admin", "http://"+p.Ports.Admin)...).CombinedOutput()
	if err != nil {
		t.Errorf("watchfan %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// socketClient is a watch on a socket that a test can misuse.
type socketClient struct {
	conn net.Conn // what is read and written, over TLS maybe
	tcp  *net.TCPConn
}

// openSocket opens a watch, over TLS if token is not "", with a receive buffer of so many bytes; 0
// is the usual size. It reads only the first bytes of the answer.
func openSocket(t *testing.T, p *watchfan, token, uri, userAgent string, buffer int) socketClient {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if buffer == 0 {
			return nil
		}
		return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer) })
	}}
	address, authorization := p.Ports.Insecure, ""
	if token != "" {
		address, authorization = p.Ports.Secure, "Authorization: Bearer "+token+"\r\n"
	}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := socketClient{conn, conn.(*net.TCPConn)}
	if token != "" {
		c.conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	_, err = fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: %s\r\n%s\r\n", uri, userAgent, authorization)
	if err == nil {
		_, err = io.ReadFull(c.conn, make([]byte, 50))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// control calls do with the descriptor of a file or a connection.
func control(raw syscall.RawConn, do func(fd int) error) (err error) {
	return errors.Join(raw.Control(func(fd uintptr) { err = do(int(fd)) }), err)
}

// cut makes the network lose every segment for the client, until it is called with false. The
// socket then accepts only segments that began with the largest time to live and that no router
// forwarded (IP_MINTTL, see ip(7)), and watchfan's begin with less. The kernel drops the others
// before TCP sees them. This takes no rights, no network namespace and no kernel module such as
// netem, so it works in any container.
func (c socketClient) cut(t *testing.T, yes bool) {
	t.Helper()
	least := 0
	if yes {
		least = 255
	}
	raw, err := c.tcp.SyscallConn()
	if err == nil {
		err = control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MINTTL, least) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readAll reads until the connection ends.
func (c socketClient) readAll() { go func() { _, _ = io.Copy(io.Discard, c.conn) }() }

// TestVerdicts: "why is this watcher slow" is answered with the cause that was injected, for each
// of several watches at once.
func TestVerdicts(t *testing.T) {
	parallel(t)
	c := privateCluster(t) // in which nobody else writes
	p := privateWatchfan(t, c, "--client-buffer-frames=400")
	direct := c.direct(t)
	createNamespaces(t, direct, "verdicts", "verdicts-quiet")
	p.waitReady(t)
	uri := "/api/v1/namespaces/verdicts/configmaps"
	direct.create(t, uri, fmt.Sprintf(`{"metadata":{"name":"x"},"data":{"pad":%q}}`, strings.Repeat("x", 20_000)))
	warm(t, []*target{p.secure(t, c.token(t, "admin"))}, uri)
	watch := fmt.Sprintf("%s?watch=1&resourceVersion=%d", uri, direct.version(t, uri))
	writes := 0
	write := func(n int) {
		t.Helper()
		for range n {
			writes++
			direct.patch(t, uri+"/x", fmt.Sprintf(`{"data":{"n":"%d"}}`, writes))
		}
	}

	good := openSocket(t, p, "", watch, "good", 0)
	good.readAll()
	openSocket(t, p, "", watch, "deaf-plain", 4096)
	openSocket(t, p, c.token(t, "admin"), watch, "deaf-tls", 4096)
	cut := openSocket(t, p, "", watch, "cut-off", 0)
	cut.cut(t, true)
	cut.readAll()
	mended := openSocket(t, p, c.token(t, "admin"), watch, "mended", 0)
	mended.cut(t, true)
	mended.readAll()
	openSocket(t, p, "", watch+"&labelSelector=no%3Dsuch", "selective", 0).readAll()
	openSocket(t, p, "", "/api/v1/namespaces/verdicts-quiet/configmaps?watch=1&resourceVersion=0", "quiet", 0).readAll()
	write(20)

	p.watchVerdict(t, "good", verdict.UpToDate)
	for _, name := range []string{"deaf-plain", "deaf-tls"} {
		got := p.watchVerdict(t, name, verdict.ClientNotReading)
		if got.TCP.WindowBytes != 0 || got.QueuedBytes == 0 {
			t.Errorf("%s: %+v", name, got.TCP)
		}
	}
	for _, name := range []string{"cut-off", "mended"} {
		if got := p.watchVerdict(t, name, verdict.NetworkLoss); got.TCP.UnackedSegments == 0 || got.TCP.Timeouts == 0 {
			t.Errorf("%s: %+v", name, got.TCP)
		}
	}
	mended.cut(t, false)
	if got := p.watchVerdict(t, "selective", verdict.FilteredOut); got.LabelSelector != "no=such" || got.Events != 0 {
		t.Errorf("selective: %+v", got)
	}
	p.watchVerdict(t, "quiet", verdict.FilteredOut)

	p.watchVerdict(t, "mended", verdict.UpToDate)
	slowest := p.command(t, "explain")
	if !strings.Contains(slowest, "ClientNotReading") {
		t.Errorf("the slowest watch: %s", slowest)
	}
	top := strings.Split(p.command(t, "top", "--once", "--resource=configmaps"), "\n")
	if len(top) < 12 || !strings.Contains(top[1], "7 watches, 7 matching") || !strings.Contains(top[4], "ClientNotReading") ||
		slices.ContainsFunc(top, func(l string) bool { return strings.Contains(l, "\x1b") }) {
		t.Errorf("top: %s", strings.Join(top, "\n"))
	}

	// A watch that falls past its bounds is evicted for the same cause.
	admin := p.admin(t)
	causes := []string{"ClientNotReading", "NetworkLoss"}
	steady.Until(t, "evictions", func() error {
		write(50)
		for _, cause := range causes {
			if n := admin.metric(t, "watchfan_evictions_total", `reason="`+cause+`"`); n < 1 {
				return fmt.Errorf("%v evictions for %s after %d writes", n, cause, writes)
			}
		}
		return nil
	})
	p.watchVerdict(t, "good", verdict.UpToDate)
}
