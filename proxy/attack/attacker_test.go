package attack_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// campaign tells the attackers' process what to do.
type campaign struct {
	Seed             uint64
	Rate             float64 // multiple of all rates
	Attackers        int     // 0: nobody attacks, and the process only uses what processors have to spare
	Only, Except     string  // regular expressions of kinds; Except may be ""
	Secure, Insecure string  // host:port
	Admin            string  // host:port, of TestHoldings only
	Hostile          hostile
	OldVersion       string // resourceVersion at the beginning
	Ledger           string // file
}

// campaignFile names the variable with the campaign's file. A process that has it is the
// attackers'.
const campaignFile = "WATCHFAN_ATTACK_CAMPAIGN"

// kinds are the attacks that can be made on the server.
func (c campaign) kinds() (all []kind) {
	for _, k := range kinds {
		if k.insecure && c.Insecure == "" || c.Except != "" && regexp.MustCompile(c.Except).MatchString(k.name) {
			continue
		}
		if regexp.MustCompile(c.Only).MatchString(k.name) {
			all = append(all, k)
		}
	}
	return all
}

// startAttackers starts this program again, as the attackers.
func startAttackers(t *testing.T, c campaign) *proxytest.Process {
	t.Helper()
	dir := t.TempDir()
	c.Ledger = filepath.Join(dir, "ledger")
	content, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "campaign")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), campaignFile+"="+file)
	cmd.Dir = dir
	p, err := proxytest.StartProcess(cmd, filepath.Join(dir, "attackers.log"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// stopAttackers ends them and returns their ledger.
func stopAttackers(p *proxytest.Process) (*ledger, error) {
	if err := p.End(syscall.SIGTERM, patience); err != nil {
		return newLedger(), fmt.Errorf("attackers: %w\n%s", err, proxytest.Tail(p.Log, 40))
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		return newLedger(), fmt.Errorf("attackers ended with %d:\n%s", code, proxytest.Tail(p.Log, 40))
	}
	return readLedger(filepath.Join(p.Cmd.Dir, "ledger"))
}

// attack is the attackers' process. It ends at SIGTERM.
func attack(file string) error {
	if err := yieldProcessor(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c campaign
	if err := json.Unmarshal(content, &c); err != nil {
		return err
	}
	if c.Attackers == 0 {
		burn(ctx)
	}
	book := newLedger()
	order := rand.New(rand.NewPCG(c.Seed, 0)).Perm(len(c.kinds()))
	crews := newCrews()
	var attackers sync.WaitGroup
	for i := range c.Attackers {
		a := &attacker{campaign: c, ledger: book, crews: crews, tenant: i % len(hostileTenants),
			rng: rand.New(rand.NewPCG(c.Seed, uint64(1+i)))}
		attackers.Go(func() { a.run(ctx, c.kinds(), order[i%len(order)]) })
	}
	attackers.Wait()
	return book.save(c.Ledger)
}

// burn uses all the processor time that is left over until ctx ends.
func burn(ctx context.Context) {
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for ctx.Err() == nil { // the check is the work
			}
		})
	}
	all.Wait()
}

// attacker takes up one kind of attack after the other.
type attacker struct {
	campaign
	ledger *ledger
	crews  crews
	tenant int // of hostileTenants
	rng    *rand.Rand

	kind kind   // the present one
	from net.IP // where its connections come from; nil for where the honest clients' do
}

// The duration of a round of one kind is drawn between these.
const shortestRound, longestRound = 5 * time.Second, 20 * time.Second

// run begins with the kind that the seed's order gives to this attacker, so that each kind is
// present from the start. The other kinds are drawn.
func (a *attacker) run(ctx context.Context, kinds []kind, first int) {
	for next := first; ctx.Err() == nil; next = a.rng.IntN(len(kinds)) {
		if a.kind = kinds[next]; !a.crews.join(a.kind) {
			proxytest.Sleep(ctx, 50*time.Millisecond) // and draw again
			continue
		}
		a.ledger.round(a.kind.name)
		round, cancel := context.WithTimeout(ctx, shortestRound+time.Duration(a.rng.Int64N(int64(longestRound-shortestRound))))
		a.kind.run(round, a)
		cancel()
		a.crews.leave(a.kind)
	}
}

// crews has the number of attackers that attack now, by kind.
type crews map[string]*atomic.Int32

func newCrews() crews {
	all := make(crews)
	for _, k := range kinds {
		all[k.name] = new(atomic.Int32)
	}
	return all
}

// join reports whether another attacker may take up k. If so, the attacker calls leave in the end.
func (c crews) join(k kind) bool {
	n := c[k.name].Add(1)
	if k.most > 0 && int(n) > k.most {
		c.leave(k)
		return false
	}
	return true
}

func (c crews) leave(k kind) { c[k.name].Add(-1) }

// note notes how one attempt was answered.
func (a *attacker) note(how string) { a.ledger.answered(a.kind.name, how) }

func (a *attacker) breach(format string, args ...any) {
	a.ledger.breached(a.kind.name, fmt.Sprintf(format, args...))
}

// every calls f so many times a second, or as often as f allows.
func (a *attacker) every(ctx context.Context, perSecond float64, f func()) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / (perSecond * a.Rate)))
	defer tick.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// crowd calls f n times at once and waits for all.
func (a *attacker) crowd(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// client returns a client of the secure port.
func (a *attacker) client(token string) *client {
	return newClient(way{base: "https://" + a.Secure, token: token, tls: &tls.Config{InsecureSkipVerify: true}})
}

// mallory returns a client of the attacker's own tenant.
func (a *attacker) mallory() *client { return a.client(a.Hostile.Tenants[a.tenant]) }

func (a *attacker) namespace() string { return hostileTenants[a.tenant] }

// ask sends a request, notes the answer, and looks in it for what the attacker may not see. It
// reads the answer for at most most.
func (a *attacker) ask(ctx context.Context, c *client, r request, most time.Duration) (code int) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if r.method == "" {
		r.method = "GET"
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		a.note(ending(err))
		return 0
	}
	defer resp.Body.Close()
	a.note(strconv.Itoa(resp.StatusCode))
	a.look(c, resp.Body, r)
	return resp.StatusCode
}

// look reads a body to its end and looks for marks of other tenants.
func (a *attacker) look(c *client, body io.Reader, r request) {
	var kept []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := body.Read(buffer)
		kept = append(kept, buffer[:n]...)
		if leak := a.leak(c.way.token, kept); leak != "" {
			a.breach("%s %.200s shows an object of %s", r.method, r.uri, leak)
		}
		kept = slices.Clone(kept[max(0, len(kept)-40):]) // a mark may begin here
		if err != nil {
			return
		}
	}
}

// leak returns the owner of an object in b that the token's user may not read.
func (a *attacker) leak(token string, b []byte) string {
	switch token {
	case a.Hostile.Everything:
		return ""
	case a.Hostile.Crawler:
		if strings.Contains(string(b), secretMark) {
			return "a secret"
		}
		return ""
	}
	own := ""
	if i := slices.Index(a.Hostile.Tenants, token); i >= 0 {
		own = hostileTenants[i]
	}
	return foreign(b, own)
}

// ending names how a request without an answer ended.
func ending(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "left"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return "closed"
}

// dial opens a connection with a small receive buffer; with TLS if secure.
func (a *attacker) dial(ctx context.Context, address string, secure bool) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: a.from}, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil || !secure {
		return conn, err
	}
	return shake(ctx, conn, "http/1.1")
}

// shake makes the handshake of a client that offers one protocol. Without success conn is closed.
func shake(ctx context.Context, conn net.Conn, protocol string) (*tls.Conn, error) {
	over := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := over.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return over, nil
}
