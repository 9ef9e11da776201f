package admin

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/upstream"
)

// A kube-apiserver that does not answer is reported in words, and not as a context's error.
func TestUpstreamSilent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	u, err := upstream.NewUpstream(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer u.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = NewUpstreamCheck(u, slog.New(slog.DiscardHandler)).ask(ctx)
	if want := "kube-apiserver has not answered within 4s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
