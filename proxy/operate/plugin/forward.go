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

// A tunnel is a local port that leads to a pod's admin port.
type tunnel struct {
	url  string
	stop chan struct{} // closed by close
	done chan error    // has the forwarder's end
}

// tunnelTimeout is longer than kube-apiserver's for a kubelet that does not answer.
const tunnelTimeout = 40 * time.Second

// forward opens a tunnel, over WebSocket, or over SPDY if kube-apiserver or something before it does
// not know it. close must be called.
func forward(ctx context.Context, cfg *rest.Config, p pod) (*tunnel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tunnelTimeout, fmt.Errorf("no answer within %s", tunnelTimeout))
	defer cancel()
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
	t := &tunnel{stop: make(chan struct{}), done: make(chan error, 1)}
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", p.admin)},
		t.stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	go func() { t.done <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-t.done:
		return nil, fmt.Errorf("reach port %d of pod %s: %w", p.admin, p, err)
	case <-ctx.Done(): // the dialer takes no context, and the program ends now
		close(t.stop)
		return nil, fmt.Errorf("reach port %d of pod %s: %w", p.admin, p, context.Cause(ctx))
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.close()
		return nil, err
	}
	t.url = fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local)
	return t, nil
}

// close closes the local port. It waits until nothing is forwarded any more.
func (t *tunnel) close() {
	close(t.stop)
	<-t.done
}
