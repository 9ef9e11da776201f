//go:build linux

package load

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// Ask is what clients ask one after the other: each client its own object of the collection. A write
// is a merge patch that changes the object.
//
// With Read the client then waits until a watch of the collection, through the same server, has brought
// what it has written: that is how long a controller waits that reads its own writes from its informers.
type Ask struct {
	Clients     int
	Write, Read bool
}

func (a Ask) String() string {
	if a.Read {
		return "patch-and-read"
	}
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

// following is a watch of the collection.
type following struct {
	mu    sync.Mutex
	came  sync.Cond // of mu
	seen  uint64    // the resourceVersion of the last event
	ended error     // why there is none any more
}

// await waits until the watch has brought a resourceVersion.
func (f *following) await(version uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.seen < version && f.ended == nil {
		f.came.Wait()
	}
	return f.ended
}

// NewAskers returns clients of e. The objects of coll must exist.
func NewAskers(e Endpoint, coll *Collection) *Askers {
	return &Askers{at: e, client: e.client(), coll: coll}
}

// Close closes the connection.
func (s *Askers) Close() { s.client.CloseIdleConnections() }

// Run asks for d, and returns how long the requests took, each until its body's last byte.
func (s *Askers) Run(ctx context.Context, a Ask, d time.Duration) (*measure.Distribution, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var f *following
	if a.Read {
		var err error
		if f, err = s.follow(ctx); err != nil {
			return nil, err
		}
	}
	took := make([]measure.Histogram, a.Clients)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
				began := time.Now()
				if err := s.ask(ctx, a, f, i, n); err != nil {
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

// ask sends request n of client i, and waits until f has brought what it wrote.
func (s *Askers) ask(ctx context.Context, a Ask, f *following, i, n int) error {
	method, body, header := http.MethodGet, "", s.header()
	if a.Write {
		method, body = http.MethodPatch, fmt.Sprintf(`{"data":{"turn":"%d-%d"}}`, time.Now().UnixNano(), n)
		header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := s.at.send(ctx, s.client, method, s.coll.objectPath(i), body, header)
	if err != nil || !a.Read {
		return err
	}
	var written struct {
		Metadata struct {
			ResourceVersion uint64 `json:",string"`
		}
	}
	if err := json.Unmarshal(answer, &written); err != nil {
		return err
	}
	return f.await(written.Metadata.ResourceVersion)
}

func (s *Askers) header() http.Header {
	return http.Header{"User-Agent": {Name}, "Accept": {"application/json"}, "Authorization": {"Bearer " + s.at.Token}}
}

var versionField = regexp.MustCompile(`"resourceVersion":"([0-9]+)"`)

// follow begins a watch of the collection, which ends with ctx.
func (s *Askers) follow(ctx context.Context) (*following, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at.URL()+s.coll.path()+"?watch=1", nil)
	if err != nil {
		return nil, err
	}
	req.Header = s.header()
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	f := new(following)
	f.came.L = &f.mu
	go func() {
		defer resp.Body.Close()
		events := bufio.NewScanner(resp.Body)
		events.Buffer(nil, 1<<20)
		for events.Scan() {
			if m := versionField.FindSubmatch(events.Bytes()); m != nil {
				version, _ := strconv.ParseUint(string(m[1]), 10, 64)
				f.mu.Lock()
				f.seen = max(f.seen, version)
				f.mu.Unlock()
				f.came.Broadcast()
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.ended = fmt.Errorf("the watch has ended: %w", cmp.Or(events.Err(), io.ErrUnexpectedEOF))
		f.came.Broadcast()
	}()
	return f, nil
}
