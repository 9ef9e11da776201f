//go:build linux

package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Ask is what clients ask one after the other: each client its own object of the collection. A write
// is a merge patch that changes the object.
type Ask struct {
	Clients int
	Write   bool
}

func (a Ask) String() string {
	if a.Write {
		return "patch"
	}
	return "get"
}

// Askers are clients that share one connection, HTTP/2 if the server speaks it, and send the next
// request when the last one has been answered.
type Askers struct {
	at     Endpoint
	client *http.Client
	coll   *Collection
}

// NewAskers returns clients of e. The objects of coll must exist.
func NewAskers(e Endpoint, coll *Collection) *Askers { return &Askers{e, e.client(), coll} }

// Close closes the connection.
func (s *Askers) Close() { s.client.CloseIdleConnections() }

// Run asks for d, and returns how long the requests took, each until its body's last byte.
func (s *Askers) Run(ctx context.Context, a Ask, d time.Duration) (*measure.Distribution, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([]measure.Histogram, a.Clients)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
				began := time.Now()
				if err := s.ask(ctx, a, i, n); err != nil {
					cancel(err)
					return
				}
				took[i].Record(time.Since(began))
			}
		})
	}
	all.Wait()
	sum := new(measure.Distribution)
	for i := range took {
		sum.Add(&took[i])
	}
	return sum, context.Cause(ctx)
}

// ask sends request n of client i.
func (s *Askers) ask(ctx context.Context, a Ask, i, n int) error {
	method, body := http.MethodGet, io.Reader(nil)
	if a.Write {
		method = http.MethodPatch
		body = strings.NewReader(fmt.Sprintf(`{"data":{"turn":"%d-%d"}}`, time.Now().UnixNano(), n))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.at.URL()+s.coll.objectPath(i), body)
	if err != nil {
		return err
	}
	req.Header = http.Header{"User-Agent": {Name}, "Accept": {"application/json"}}
	if a.Write {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if s.at.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.at.Token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", a, resp.Status)
	}
	return err
}
