package plugin

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// dialTimeout is longer than kube-apiserver's for a kubelet that does not answer.
const dialTimeout = 40 * time.Second

// ask calls work with the URL of a local port that leads to a pod's admin port. When work has returned, it closes the
// port, and waits until nothing is forwarded any more.
func ask(ctx context.Context, cfg *rest.Config, p pod, work func(admin string) error) error {
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := newForwarder(cfg, p, stop, ready)
	if err != nil {
		return err
	}
	go func() { done <- forwarder.ForwardPorts() }()
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer within %s", dialTimeout))
	defer cancel()
	select {
	case <-ready:
	case err := <-done:
		return fmt.Errorf("reach port %d of pod %s: %w", p.admin, p, err)
	case <-ctx.Done(): // the dialer takes no context, and the program ends now
		close(stop)
		return fmt.Errorf("reach port %d of pod %s: %w", p.admin, p, context.Cause(ctx))
	}
	defer func() {
		http.DefaultClient.CloseIdleConnections() // diagnose's; otherwise the forwarder waits for them
		close(stop)
		<-done
	}()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	return work(fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local))
}

// newForwarder returns a forwarder to a pod's admin port, over WebSocket, or over SPDY if kube-apiserver or something
// before it does not know it. It closes ready when the local port is open, and the port when stop is closed.
func newForwarder(cfg *rest.Config, p pod, stop, ready chan struct{}) (*portforward.PortForwarder, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	url := base.JoinPath("/api/v1/namespaces", p.namespace, "pods", p.name, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport, CheckRedirect: exchange.NoRedirect}, http.MethodPost, url)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(url, cfg)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialer(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	return portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", p.admin)}, stop, ready,
		io.Discard, io.Discard)
}
