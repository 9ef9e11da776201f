package e2e_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestHTTP2Attacks sends each attack to the secure port and to kube-apiserver. Both end the stream
// or the connection with the same code, unless the table says why not, and answer nobody else's
// request.
func TestHTTP2Attacks(t *testing.T) {
	parallel(t)
	c, p := sharedCluster(t), sharedWatchfan(t)
	p.waitReady(t)
	token := c.token(t, "admin")
	gate := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for _, a := range proxytest.HTTP2Attacks(token) {
		for _, server := range []struct{ name, address, want string }{
			{"kube-apiserver", c.Address(), cmp.Or(a.Theirs, a.Want)}, {"watchfan", p.Ports.Secure, a.Want},
		} {
			wg.Go(func() {
				gate <- struct{}{}
				defer func() { <-gate }()
				wanted := strings.Split(server.want, " or ")
				got, err := outcome(t, server.address, token, a, wanted)
				if err != nil {
					t.Errorf("%s to %s: %v", a.Name, server.name, err)
				} else if !slices.Contains(wanted, got) {
					t.Errorf("%s to %s: %s, want %s", a.Name, server.name, got, server.want)
				}
			})
		}
	}
	wg.Wait()
	checkLog(t, p, "hidden", token)
}

// outcome attacks a server over a connection of its own, and sends another request behind.
func outcome(t *testing.T, address, token string, a proxytest.HTTP2Attack, wanted []string) (string, error) {
	w, err := proxytest.DialHTTP2(t.Context(), address, steady.Patience)
	if err != nil {
		return "", err
	}
	defer w.Close()
	fields := proxytest.RequestFields("GET", "/version", "authorization", "Bearer "+token)
	if err := errors.Join(a.Send(w), w.Ask(proxytest.HTTP2Sentinel, true, fields...)); err != nil {
		return "", err
	}
	_ = w.Flush() // a server that has closed the connection may have said why
	return w.Outcome(proxytest.HTTP2Sentinel, wanted...)
}
