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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
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
}

// campaignVariable names the variable with the campaign. A process that has it is the attackers'.
const campaignVariable = "WATCHFAN_ATTACK_CAMPAIGN"

// ledgerFile is where the attackers leave their ledger, in their directory.
const ledgerFile = "ledger"

// kinds are the attacks that can be made on the server.
func (c campaign) kinds() []kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return k.insecure && c.Insecure == "" || !selected(k.name, c.Only, c.Except)
	})
}

// selected reports whether a kind of attack is one that only and except leave.
func selected(name, only, except string) bool {
	return regexp.MustCompile(only).MatchString(name) && (except == "" || !regexp.MustCompile(except).MatchString(name))
}

// startAttackers starts this program again, as the attackers. On Linux they have the lowest priority: the
// server's work for attackers slows honest clients, and not the attackers' own work.
func startAttackers(t *testing.T, c campaign) *proxytest.Process {
	t.Helper()
	content, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	program := []string{"chrt", "--idle", "0", os.Args[0]}
	if runtime.GOOS != "linux" {
		program = program[3:]
	}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), campaignVariable+"="+string(content))
	p, err := proxytest.StartProcess(cmd, filepath.Join(cmd.Dir, "attackers.log"))
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
	return readLedger(filepath.Join(p.Cmd.Dir, ledgerFile))
}

// attack is the attackers' process. It ends at SIGTERM.
func attack(content string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var c campaign
	if err := json.Unmarshal([]byte(content), &c); err != nil {
		return err
	}
	if c.Attackers == 0 { // use the processor time that is left over
		crowd(runtime.GOMAXPROCS(0), func(int) {
			for ctx.Err() == nil { // the check is the work
			}
		})
	}
	book, kinds, crews := newLedger(), c.kinds(), make(map[string]*atomic.Int32)
	for _, k := range kinds {
		crews[k.name] = new(atomic.Int32)
	}
	order := rand.New(rand.NewPCG(c.Seed, 0)).Perm(len(kinds))
	crowd(c.Attackers, func(i int) {
		a := &attacker{campaign: c, ledger: book, crews: crews, tenant: i % len(hostileTenants),
			rng: rand.New(rand.NewPCG(c.Seed, uint64(1+i)))}
		a.run(ctx, kinds, order[i%len(order)])
	})
	return book.save(ledgerFile)
}

// attacker takes up one kind of attack after the other.
type attacker struct {
	campaign
	ledger *ledger
	crews  map[string]*atomic.Int32 // how many attack now, by kind
	tenant int                      // of hostileTenants
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
		a.kind = kinds[next]
		crew := a.crews[a.kind.name]
		if n := crew.Add(1); a.kind.most == 0 || int(n) <= a.kind.most {
			a.note(round)
			round, cancel := context.WithTimeout(ctx, shortestRound+time.Duration(a.rng.Int64N(int64(longestRound-shortestRound))))
			a.kind.run(round, a)
			cancel()
		} else {
			proxytest.Sleep(ctx, 50*time.Millisecond) // and draw again
		}
		crew.Add(-1)
	}
}

// note notes how one attempt was answered, or a breach.
func (a *attacker) note(what string) { a.ledger.note(a.kind.name, what) }

func (a *attacker) breach(format string, args ...any) { a.note(breach + fmt.Sprintf(format, args...)) }

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

// client returns a client of the secure port.
func (a *attacker) client(token string) *client {
	return newClient(way{base: "https://" + a.Secure, token: token, tls: &tls.Config{InsecureSkipVerify: true}})
}

// who is whose token an attacker uses.
type who func(a *attacker) string

func mallory(a *attacker) string { return a.Hostile.Tenants[a.tenant] } // of the attacker's own tenant
func crawler(a *attacker) string { return a.Hostile.Crawler }
func scanner(a *attacker) string { return a.Hostile.Everything }
func stranger(*attacker) string  { return "stranger" }
func anybody(*attacker) string   { return string(uuid.NewUUID()) } // another stranger each time
func nobody(*attacker) string    { return "" }

// own is the path of the ConfigMaps of the attacker's own tenant.
func (a *attacker) own() string {
	return "/api/v1/namespaces/" + hostileTenants[a.tenant] + "/configmaps"
}

// ask sends a request, notes the answer, and looks in it for what the attacker may not see. It
// reads the answer for at most most.
func (a *attacker) ask(ctx context.Context, c *client, r request, most time.Duration) (code int) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
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
	for buffer := make([]byte, 64<<10); ; {
		n, err := body.Read(buffer)
		kept = a.search(c.way.token, append(kept, buffer[:n]...), r.uri)
		if err != nil {
			return
		}
	}
}

// search looks for marks of other tenants in b, and returns its end, in which another may begin.
func (a *attacker) search(token string, b []byte, where string) []byte {
	if leak := a.leak(token, b); leak != "" {
		a.breach("%.200s shows an object of %s", where, leak)
	}
	return slices.Clone(b[max(0, len(b)-40):])
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
		return notReached
	}
	return "closed"
}

// dialer has a small receive buffer.
func (a *attacker) dialer() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: a.from}, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
}

// dial opens a connection. It offers one protocol over TLS; without one there is no TLS.
func (a *attacker) dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	if protocol == "" {
		return a.dialer().DialContext(ctx, "tcp", address)
	}
	d := tls.Dialer{NetDialer: a.dialer(), Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return d.DialContext(ctx, "tcp", address)
}
