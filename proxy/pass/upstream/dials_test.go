package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

// Clients that come and go while kube-apiserver answers no handshake have a bounded number of dials, which end by
// themselves. Then a client's request dials again.
func TestDials(t *testing.T) {
	t.Run("strangers", func(t *testing.T) { dialsAreBounded(t, true, mostStrangersDials) })
	t.Run("clients", func(t *testing.T) { dialsAreBounded(t, false, mostClientsDials) })
}

func dialsAreBounded(t *testing.T, strangers bool, mostWaiting int) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var dials struct{ open, most, all int }
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			dials.open += n
			dials.most, dials.all = max(dials.most, dials.open), dials.all+max(0, n)
		}
		counted := func() (open, most, all int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return dials.open, dials.most, dials.all
		}
		u, err := NewUpstream(&rest.Config{Host: "https://localhost", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				count(1)
				go func() {
					_, _ = io.Copy(io.Discard, theirs)
					theirs.Close()
					count(-1)
				}()
				return ours, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(patience time.Duration) error {
			ctx, leave := context.WithTimeout(t.Context(), patience)
			defer leave()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.URL("/version", "").String(), nil)
			if err != nil {
				return err
			}
			resp, err := u.Pass(auth.Identity{Kind: auth.KindToken, Token: "some"}, strangers, req)
			if err == nil {
				resp.Body.Close()
			}
			return err
		}
		var asking sync.WaitGroup
		for range 3 * mostWaiting {
			asking.Go(func() { _ = ask(time.Millisecond) })
		}
		asking.Wait()
		if _, most, _ := counted(); most != mostDials {
			t.Errorf("%d dials at a time, want %d", most, mostDials)
		}
		if err := ask(time.Hour); !errors.Is(err, errDials) {
			t.Errorf("got %v, want %v", err, errDials)
		}
		time.Sleep(time.Hour)
		if open, _, all := counted(); open != 0 || all != mostDials+mostWaiting {
			t.Errorf("%d dials are open, of %d, want %d", open, all, mostDials+mostWaiting)
		}
		err = ask(time.Hour)
		if _, _, all := counted(); err == nil || errors.Is(err, errDials) || all != mostDials+mostWaiting+1 {
			t.Errorf("got %v from dial %d", err, all)
		}
	})
}
