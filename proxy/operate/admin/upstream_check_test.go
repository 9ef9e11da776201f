package admin

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// A kube-apiserver that does not answer is reported in words, and not as a context's error.
func TestUpstreamSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipes := proxytest.NewPipes()
		s := &httptest.Server{Listener: pipes, Config: &http.Server{
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}}
		s.Start()
		defer s.Close()
		u, err := upstream.NewUpstream(&rest.Config{Host: s.URL, Dial: pipes.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer u.CloseIdleConnections()
		err = NewUpstreamCheck(u, slog.New(slog.DiscardHandler)).ask(t.Context())
		if want := "kube-apiserver has not answered within 4s"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
