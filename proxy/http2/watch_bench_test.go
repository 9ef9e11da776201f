//go:build linux

package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// BenchmarkDeliver measures one event's way to 1,000 watches over TLS on real sockets: to streams of
// HTTP/2 connections, and for comparison to as many connections of HTTP/1.1 (streams=0). The client
// throws the bytes away in the kernel, which costs the same for each delivery. cpu-ns is the CPU time
// of the process for the median event, so other load on the machine adds little to it.
func BenchmarkDeliver(b *testing.B) {
	for _, size := range []int{1860, 10_000} {
		for _, streams := range []int{0, 1, 50} {
			b.Run(fmt.Sprintf("bytes=%d/streams=%d", size, streams), func(b *testing.B) { benchDeliver(b, size, streams) })
		}
	}
}

func benchDeliver(b *testing.B, size, streams int) {
	const watches = 1000
	flusher := fanout.NewFlusher(1, 0, fanout.NewMetrics(metrics.NewSet()))
	limits := fanout.Limits{HistoryEvents: 100, HistoryBytes: 1 << 20, ClientFrames: 1000, ClientBytes: 16 << 20}
	cache := fanout.NewCache(limits, flusher)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); flusher.Run(ctx) }()
	defer func() {
		cache.Close(fanout.Ending{Reason: fanout.LaneClosed})
		cancel()
		<-ran
	}()
	if _, err := cache.Replace(nil, 1, time.Now()); err != nil {
		b.Fatal(err)
	}
	fds := openWatches(b, cache, flusher, watches, streams)
	time.Sleep(200 * time.Millisecond) //testlint:allow timer the answers to SETTINGS are not measured
	drop(fds, 0)
	scanner := framing.NewScanner(framing.JSON, nil)
	var spent []time.Duration
	for rv := 2; b.Loop(); rv++ {
		ev, err := scanner.Event(fmt.Appendf(nil, `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",`+
			`"metadata":{"name":"x","resourceVersion":"%d"},"pad":"%s"}}`+"\n", rv, strings.Repeat("x", size)))
		if err != nil {
			b.Fatal(err)
		}
		before := cpu()
		if err := cache.Apply(ev, time.Now()); err != nil {
			b.Fatal(err)
		}
		drop(fds, size*max(streams, 1))
		spent = append(spent, cpu()-before)
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2].Nanoseconds())/watches, "cpu-ns/delivery")
}

// openWatches opens n watches, and returns the clients' sockets.
func openWatches(b *testing.B, cache *fanout.Cache, flusher *fanout.Flusher, n, streams int) (fds []int) {
	everything, _ := fanout.NewFilter("", nil, nil, nil)
	subscribe := func() *fanout.Subscription {
		sub, err := cache.Subscribe(fanout.Request{Filter: everything, Timeout: time.Hour})
		if err != nil {
			b.Error(err)
		}
		return sub
	}
	if streams == 0 {
		return openHTTP1(b, n, func(sink fanout.Sink) { flusher.Start(subscribe(), sink) })
	}
	began := make(chan struct{}, n)
	w := newWorld(b, func(x *exchange.Exchange) { x.Response.Stream = &subscribed{flusher, subscribe(), began} })
	for range n / streams {
		p := w.dial(wire.Setting{ID: wire.SettingInitialWindowSize, Val: maxWindow})
		_ = p.framer.WriteWindowUpdate(0, maxWindow-defaultWindow)
		for i := range streams {
			p.get(uint32(2*i+1), "/watch")
			<-began
		}
		fds = append(fds, socketOf(b, p.tap.Conn))
	}
	return fds
}

// drop reads at least n bytes of each socket, and all that is there, without copying them.
func drop(fds []int, n int) {
	for _, fd := range fds {
		for got := 0; ; {
			m, _, err := syscall.Recvfrom(fd, trash[:], syscall.MSG_TRUNC|syscall.MSG_DONTWAIT)
			got += max(m, 0)
			if err == syscall.EAGAIN {
				if got >= n {
					break
				}
				time.Sleep(20 * time.Microsecond) //testlint:allow timer the proxy writes meanwhile
			}
		}
	}
}

// trash takes what drop reads, if the kernel copies it.
var trash [1 << 20]byte

// socketOf returns a connection's file descriptor, which stays the connection's.
func socketOf(b testing.TB, c net.Conn) (fd int) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(of uintptr) { fd = int(of) })
	}
	if err != nil {
		b.Fatal(err)
	}
	return fd
}

// cpu returns the CPU time of the process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// openHTTP1 opens n connections without HTTP/2, and calls start with a sink for each.
func openHTTP1(b *testing.B, n int, start func(fanout.Sink)) (fds []int) {
	ln, poller := listenTLS(b)
	defer ln.Close()
	for range n {
		client, served := shakeHands(b, ln)
		sink := downstream.NewSink(served, poller, "", proxytest.Guard(), downstream.SinkEvents{
			Gone: func() {}, Drop: func() {}, Evict: func(fanout.State) {}, Ended: func(fanout.Reason, bool) {},
		})
		if err := sink.Begin([]byte("head"), func() {}); err != nil {
			b.Fatal(err)
		}
		start(sink)
		fds = append(fds, socketOf(b, client))
	}
	return fds
}

// shakeHands opens one connection over TLS, and returns the client's socket and the server's end.
func shakeHands(b *testing.B, ln net.Listener) (client, served net.Conn) {
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	shaken := make(chan error, 1)
	go func() { shaken <- tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	if served, err = ln.Accept(); err == nil {
		b.Cleanup(func() { served.Close() })
		err = served.(*tls.Conn).Handshake()
	}
	if err = errors.Join(err, <-shaken); err != nil {
		b.Fatal(err)
	}
	return client, served
}
