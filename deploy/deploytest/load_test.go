package deploytest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

const (
	healthyClients = 20
	gzipClients    = 2  // of them
	updates        = 40 // per second, of the objects that the healthy clients watch
	bigObject      = 200 << 10
)

// load is a cluster of its own with watchfan in front of it and with clients. The deliveries to
// healthy clients are counted. Two clients do not read. One client's requests are answered from the
// cache, passed through or rejected.
type load struct {
	c                       *cluster
	process                 *proxytest.Process
	insecure, secure, admin string
	tls                     *tls.Config
	token, adminToken       string

	delivered atomic.Int64 // events that the healthy clients have read
	writes    atomic.Int64 // changes of the objects that they watch
	turns     atomic.Int64 // of read
	pause     atomic.Bool  // of the writes
}

func startLoad(t *testing.T) *load {
	t.Helper()
	c, err := startCluster(binary(t, "devcluster"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	l := &load{c: c}
	c.namespace(t, "load")
	manifest := ""
	for _, name := range []string{"parked", "evicted"} {
		manifest += fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: load}}\n", name)
	}
	for i := range 10 {
		manifest += fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: small-%d, namespace: load, "+
			"labels: {size: small}}}\n", i)
	}
	c.must(t, manifest)
	l.start(t)
	return l
}

// begin starts the clients, which continue until the test ends. When it returns, one client is
// parked and one has been evicted.
func (l *load) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range healthyClients {
		stream := l.watch(ctx, t, i < gzipClients)
		running.Go(func() {
			defer stream.Close()
			lines := bufio.NewScanner(stream)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				l.delivered.Add(1)
			}
			if ctx.Err() == nil {
				t.Errorf("a healthy client's watch has ended: %v", lines.Err())
			}
		})
	}
	each := func(interval time.Duration, f func(i int) error) {
		running.Go(func() {
			tick := time.NewTicker(interval) //testlint:allow timer the pace of the load
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				if err := f(i); err != nil && ctx.Err() == nil {
					t.Logf("load: %v", err) // for example while kube-apiserver restarts
				}
			}
		})
	}
	each(time.Second/updates, func(i int) error {
		if l.pause.Load() {
			return nil
		}
		patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i)
		_, err := l.c.client.CoreV1().ConfigMaps("load").Patch(ctx, fmt.Sprint("small-", i%10), types.MergePatchType,
			patch, metav1.PatchOptions{})
		if err == nil {
			l.writes.Add(1)
		}
		return err
	})
	each(200*time.Millisecond, l.read(ctx))
	l.stall(t, "parked")
	l.growUntil(ctx, t, "parked", 200, "full socket of a client that does not read", func() bool {
		return l.metric(t, "watchfan_parked_watchers") > 0 && l.metric(t, "watchfan_lag_events") >= 3
	})
	l.stall(t, "evicted")
	l.growUntil(ctx, t, "evicted", 400, "eviction of a client that is 400 large events behind", func() bool {
		return l.metric(t, "watchfan_watches_ended_total", `reason="evicted"`) > 0
	})
}

// growUntil writes large versions of a secret until done, and up to most of them. Then it waits,
// because kube-apiserver may send them later than it stores them.
func (l *load) growUntil(ctx context.Context, t *testing.T, name string, most int, what string, done func() bool) {
	t.Helper()
	for i := 0; i < most && !done(); i++ {
		if err := l.grow(ctx, name, i); err != nil {
			t.Fatal(err)
		}
	}
	steady.Until(t, what, func() error {
		if !done() {
			return fmt.Errorf("not after %d large events", most)
		}
		return nil
	})
}

// grow writes a large version of a secret.
func (l *load) grow(ctx context.Context, name string, i int) error {
	patch := fmt.Appendf(nil, `{"data":{"big":%q}}`, strings.Repeat("A", bigObject)+fmt.Sprintf("%04d", i%10000))
	_, err := l.c.client.CoreV1().Secrets("load").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (l *load) start(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("GOMEMLIMIT", "2GiB")
	fan := startWatchfan(t, dir, l.c.Ready.Kubeconfigs["admin"], "--client-buffer-bytes=8Mi", "--shutdown-timeout=5s")
	l.process, l.insecure, l.secure, l.admin = fan.Process, fan.Ports.Insecure, fan.Ports.Secure, fan.Ports.Admin
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(readFile(t, filepath.Join(dir, "watchfan.crt"))))
	l.tls = &tls.Config{RootCAs: roots}
	l.token = strings.TrimSpace(readFile(t, l.c.Ready.TokenFiles["reader"]))
	l.adminToken = strings.TrimSpace(readFile(t, l.c.Ready.TokenFiles["admin"]))
}

// watch begins a healthy client's watch.
func (l *load) watch(ctx context.Context, t *testing.T, gzip bool) io.ReadCloser {
	t.Helper()
	transport := &http.Transport{DisableCompression: !gzip}
	t.Cleanup(transport.CloseIdleConnections)
	uri := "http://" + l.insecure +
		"/api/v1/namespaces/load/configmaps?watch=1&labelSelector=size%3Dsmall&timeoutSeconds=600&resourceVersion=0"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || gzip && !resp.Uncompressed {
		t.Fatalf("%s: %s, uncompressed %v", uri, resp.Status, resp.Uncompressed)
	}
	return resp.Body
}

// stall watches a secret, and reads only the response's first bytes.
func (l *load) stall(t *testing.T, name string) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		}), err)
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.insecure)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn,
		"GET /api/v1/namespaces/load/secrets?watch=1&fieldSelector=metadata.name%%3D%s&timeoutSeconds=600 "+
			"HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n", name, "Bearer "+l.adminToken)
	status := make([]byte, len("HTTP/1.1 200"))
	if err == nil {
		_, err = io.ReadFull(conn, status)
	}
	if err != nil || string(status) != "HTTP/1.1 200" {
		t.Fatalf("watch %s: %s %v", name, status, err)
	}
}

// read makes requests of all kinds. In each turn three are answered from the cache, three pass
// through, and one is rejected.
func (l *load) read(ctx context.Context) func(i int) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: l.tls}, Timeout: steady.Patience}
	get := func(want int, url string, headers ...string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		req.Host = req.Header.Get("Host")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != want {
			return fmt.Errorf("%s: %s, want %d", url, resp.Status, want)
		}
		return nil
	}
	plain, secure, token := "http://"+l.insecure+"/api/v1/namespaces/load/",
		"https://"+l.secure+"/api/v1/namespaces/load/", "Bearer "+l.token
	admin := "Bearer " + l.adminToken
	return func(int) error {
		l.turns.Add(1)
		return errors.Join(
			// From the cache. The first is consistent and large, so it needs a proof of freshness.
			get(200, plain+"secrets", "Authorization", admin),
			get(200, plain+"configmaps/small-1?resourceVersion=0"),
			get(200, secure+"configmaps?resourceVersion=0", "Authorization", token),
			// Passed through: a get of the current state, a table, and a list that the client may not
			// read.
			get(200, plain+"configmaps/small-1"),
			get(200, plain+"configmaps", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
			get(403, secure+"secrets?resourceVersion=0", "Authorization", token),
			// Rejected.
			get(403, plain+"configmaps", "Host", "example.com"),
		)
	}
}

// relist stops watchfan while changes are made. When watchfan continues, kube-apiserver no longer
// has these changes, so watchfan lists again.
func (l *load) relist(t *testing.T) {
	t.Helper()
	must := func(_ string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.process.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	must(l.c.Command("restart-apiserver", "--kill"))
	before := l.writes.Load()
	steady.Until(t, "write behind watchfan's back", func() error {
		if n := l.writes.Load() - before; n < 10 {
			return fmt.Errorf("%d writes", n)
		}
		return nil
	})
	must(l.c.Command("compact"))
	must(l.c.Command("restart-apiserver", "--kill"))
	if err := l.process.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	steady.Until(t, "second list", func() error {
		if n := l.metric(t, "watchfan_upstream_relists_total"); n == 0 {
			return errors.New("no relist")
		}
		if n := l.metric(t, "watchfan_upstream_watches", `resource="configmaps"`); n != 1 {
			return fmt.Errorf("%v watches", n)
		}
		return nil
	})
	// After a slow list, watchfan spares kube-apiserver for some seconds, and consistent lists wait.
	turns := l.turns.Load()
	steady.Until(t, "usual pace of requests", func() error {
		time.Sleep(time.Second) //testlint:allow timer the condition is a pace
		before := turns
		if turns = l.turns.Load(); turns < before+4 {
			return fmt.Errorf("%d turns in a second", turns-before)
		}
		return nil
	})
}

// scrape returns the current /metrics.
func scrape(t *testing.T, admin string) string {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return string(body)
}

func (l *load) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	return proxytest.SumMetric(scrape(t, l.admin), name, labels...)
}
