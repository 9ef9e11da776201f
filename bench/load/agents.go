//go:build linux

package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Habit is what each of many agents does again and again, each from an address and with a connection
// of its own.
type Habit struct {
	UserAgent string
	Token     string // of the account that all share
	Agents    int
	Period    time.Duration // between two requests of an agent
	Accept    string
	Identity  bool // no compression; otherwise gzip, as client-go asks for
	Fresh     bool // each request has a new connection
	Patch     bool // a request changes a label of its target
	Target    func(agent, n int) string
}

// Agents are the agents of a habit at work.
type Agents struct {
	Done    atomic.Int64 // whole answers
	Refused atomic.Int64 // answers 429
	Failed  atomic.Int64 // other answers than 200, and errors
	First   atomic.Pointer[error]

	mu      sync.Mutex
	latency measure.Distribution
	running sync.WaitGroup
	cancel  context.CancelFunc
}

// Start makes the agents begin, spread over their period. An agent that is late skips requests, and
// one that is told to retry later waits that long.
func (h Habit) Start(ctx context.Context, e Endpoint) *Agents {
	a := new(Agents)
	ctx, a.cancel = context.WithCancel(ctx)
	e.Token = h.Token
	for i := range h.Agents {
		a.running.Go(func() {
			if Sleep(ctx, h.Period*time.Duration(i)/time.Duration(h.Agents)) == nil {
				a.work(ctx, h, e, i)
			}
		})
	}
	return a
}

// Stop ends the agents, and returns the latencies of their whole answers.
func (a *Agents) Stop() *measure.Distribution {
	a.cancel()
	a.running.Wait()
	return &a.latency
}

// from returns an agent's address on loopback.
func from(agent int) *net.Dialer {
	ip := net.IPv4(127, 1, byte(agent>>8), byte(agent))
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}, Timeout: connectTimeout}
}

func (a *Agents) work(ctx context.Context, h Habit, e Endpoint, agent int) {
	client := e.client()
	transport := client.Transport.(*http.Transport)
	transport.DialContext, transport.DisableCompression, transport.DisableKeepAlives = from(agent).DialContext, true, h.Fresh
	defer client.CloseIdleConnections()
	var latency measure.Histogram
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.latency.Add(&latency)
	}()
	next := time.Now()
	for n := 0; Sleep(ctx, time.Until(next)) == nil; n++ {
		began := time.Now()
		wait, err := a.ask(ctx, client, h, e, h.Target(agent, n))
		if err != nil && ctx.Err() == nil {
			a.Failed.Add(1)
			a.First.CompareAndSwap(nil, &err)
		} else if err == nil && wait == 0 {
			a.Done.Add(1)
			latency.Record(time.Since(began))
		}
		for next = next.Add(h.Period); next.Before(began.Add(wait)) || next.Before(time.Now().Add(-h.Period)); {
			next = next.Add(h.Period)
		}
	}
}

// ask makes one request, and reads the whole answer. wait is how long the agent is told to wait.
func (a *Agents) ask(
	ctx context.Context, client *http.Client, h Habit, e Endpoint, target string,
) (wait time.Duration, err error) {
	method, body := http.MethodGet, io.Reader(nil)
	if h.Patch {
		method, body = http.MethodPatch, strings.NewReader(fmt.Sprintf(`{"metadata":{"labels":{"at":"%d"}}}`, time.Now().UnixNano()))
	}
	req, err := http.NewRequestWithContext(ctx, method, e.URL()+target, body)
	if err != nil {
		return 0, err
	}
	req.Header = http.Header{"User-Agent": {h.UserAgent}, "Accept": {h.Accept}, "Authorization": {"Bearer " + e.Token},
		"Content-Type": {"application/merge-patch+json"}}
	if !h.Identity {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	buf := copies.Get().(*[]byte)
	defer copies.Put(buf)
	if _, err := io.CopyBuffer(onlyWriter{io.Discard}, resp.Body, *buf); err != nil {
		return 0, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return 0, nil
	case http.StatusTooManyRequests:
		a.Refused.Add(1)
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return time.Duration(max(seconds, 1)) * time.Second, nil
	}
	return 0, fmt.Errorf("%s %s: %s", method, target, resp.Status)
}

var copies = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// PodPath returns the path of the i-th pod.
func PodPath(i int) string { return NewPod(i).path() }

// Account makes a service account that may do what a cluster role says, and returns a token of it.
func (w *Writer) Account(ctx context.Context, namespace, name, role string) (token string, err error) {
	accounts := "/api/v1/namespaces/" + namespace + "/serviceaccounts"
	for path, body := range map[string]string{
		accounts: fmt.Sprintf(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":%q}}`, name),
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1",`+
			`"kind":"ClusterRoleBinding","metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io",`+
			`"kind":"ClusterRole","name":%q},"subjects":[{"kind":"ServiceAccount","name":%q,"namespace":%q}]}`, name, role, name, namespace),
	} {
		if _, err := w.Send(ctx, http.MethodPost, path, body); err != nil {
			return "", err
		}
	}
	answer, err := w.Send(ctx, http.MethodPost, accounts+"/"+name+"/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":86400}}`)
	if err != nil {
		return "", err
	}
	var request struct{ Status struct{ Token string } }
	err = json.Unmarshal(answer, &request)
	return request.Status.Token, err
}

// CreateNode creates a Node with a name.
func (w *Writer) CreateNode(ctx context.Context, name string) error {
	_, err := w.Send(ctx, http.MethodPost, "/api/v1/nodes", fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, name))
	return err
}
