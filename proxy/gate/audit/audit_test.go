package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// auditFile is where a test's audit log writes.
type auditFile struct {
	mu     sync.Mutex
	b      bytes.Buffer
	closed bool
	fail   func(p []byte) (int, error) // replaces writing; nil: writes succeed
}

func (f *auditFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return f.b.Write(p)
	}
	n, err := f.fail(p)
	f.b.Write(p[:n])
	return n, err
}

func (f *auditFile) Close() error {
	f.closed = true
	return nil
}

func (f *auditFile) set(fail func(p []byte) (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// ofToken and ofCertificate are identities of clients.
func ofToken(token string) auth.Identity { return auth.Identity{Kind: auth.KindToken, Token: token} }

func ofCertificate(name string, groups ...string) auth.Identity {
	return auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: name, Groups: groups}}
}

// ownersFor returns the owners that says has.
func ownersFor(says proxytest.Owners) *auth.Owners {
	up := proxytest.OwnersUpstream(says, func(id auth.Identity) string { return id.Token })
	opts := &auth.Options{AuthenticationTokenWebhookCacheTTL: 10 * time.Second}
	return auth.NewAuthorizer(up, auth.NewKnownTokens(), opts, false, auth.NewMetrics(metrics.NewSet()), proxytest.Guard()).Owners
}

// newTestAudit returns an audit log that runs, and its file and log.
func newTestAudit(says proxytest.Owners) (a *Log, f *auditFile, log *bytes.Buffer) {
	f, log = &auditFile{}, &bytes.Buffer{}
	a = &Log{out: f, owners: ownersFor(says), metrics: NewMetrics(metrics.NewSet()), log: slog.New(slog.NewTextHandler(log, nil)),
		complaints: rate.Sometimes{Interval: auditComplaint},
		wake:       make(chan struct{}, 1), donec: make(chan struct{})}
	return a, f, log
}

// asked returns what x asks for.
func asked(x *exchange.Exchange) *request.Request {
	req, _ := request.Parse(x)
	return req
}

// readOf returns what is served from a cache for a request line.
func readOf(t testing.TB, id auth.Identity, line string, headers ...string) (*exchange.Exchange, Read) {
	t.Helper()
	x := proxytest.MustRead(t, line, headers...)
	req, ok := request.Parse(x)
	if !ok {
		t.Fatalf("%s is not recognised", line)
	}
	x.Received = time.Now()
	return x, Read{Request: req, ID: id, Decision: auth.Allow("")}
}

// TestAuditForm: each line has the form of kube-apiserver's line about the same request (proxy/suites/e2e
// compares them).
func TestAuditForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f, _ := newTestAudit(proxytest.Owners{"t": "jane", "old": "404", "": "system:serviceaccount:w:w"})
		go a.Run()
		const when = `"requestReceivedTimestamp":"2000-01-01T00:00:00.000000Z",` +
			`"stageTimestamp":"2000-01-01T00:00:00.000000Z"`
		const user = `"user":{"username":"jane","uid":"u","groups":["g"],"extra":{"k":["v"]}}`
		next := func(want string) {
			t.Helper()
			synctest.Wait()
			got := f.b.String()
			f.b.Reset()
			if want = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",` + want + "}\n"; got != want {
				t.Errorf(" got %swant %s", got, want)
			}
		}

		x, r := readOf(t, ofToken("t"), "/api/v1/namespaces/a/pods?limit=5&labelSelector=a%3Db",
			"Authorization: Bearer t", "User-Agent: x<y",
			"X-Forwarded-For: 10.0.0.1, junk, 10.0.0.2", "X-Real-Ip: 10.0.0.3")
		x.Response.Header.Set("Audit-Id", "one")
		r.Decision = auth.Allow(`RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "y" to Group "<z>"`)
		a.Served(x, r)
		next(
			`"auditID":"one","stage":"ResponseComplete",` +
				`"requestURI":"/api/v1/namespaces/a/pods?limit=5\u0026labelSelector=a%3Db","verb":"list",` + user +
				`,"sourceIPs":["10.0.0.1","10.0.0.2","10.0.0.3","0.0.0.0"],"userAgent":"x\u003cy",` +
				`"objectRef":{"resource":"pods","namespace":"a","apiVersion":"v1"},` +
				`"responseStatus":{"metadata":{},"code":200},` + when +
				`,"annotations":{"authorization.k8s.io/decision":"allow",` +
				`"authorization.k8s.io/reason":"RBAC: allowed by ClusterRoleBinding \"x\" of ClusterRole \"y\" to ` +
				`Group \"\u003cz\u003e\""}`)

		x, r = readOf(t, auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "joe"}},
			"/apis/apps/v1/namespaces/a/deployments/x", "User-Agent: "+strings.Repeat("u", 1025))
		apistatus.Write(x, apistatus.NotFound(r.Request.GVR, r.Request.Name))
		x.Response.Header.Set("Audit-Id", "two")
		a.Served(x, r)
		next(`"auditID":"two","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/a/deployments/x",` +
			`"verb":"get","user":{"username":"joe"},"sourceIPs":["0.0.0.0"],"userAgent":"` +
			strings.Repeat("u", 1024) +
			`...TRUNCATED","objectRef":{"resource":"deployments","namespace":"a","name":"x","apiGroup":"apps",` +
			`"apiVersion":"v1"},"responseStatus":{"metadata":{},"status":"Failure","message":"deployments.apps \"x\" ` +
			`not found","reason":"NotFound","details":{"name":"x","group":"apps","kind":"deployments"},"code":404},` +
			when + `,"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}`)

		x, r = readOf(t, ofToken("old"), "/api/v1/pods?watch=1&fieldSelector=metadata.name%3Dp")
		r.Decision = auth.Allow("why it may")
		event, _ := a.WatchBegan(x, r, "three", http.StatusOK)
		const watch = `"requestURI":"/api/v1/pods?watch=1\u0026fieldSelector=metadata.name%3Dp","verb":"watch","user":{},"sourceIPs":["0.0.0.0"],` +
			`"objectRef":{"resource":"pods","name":"p","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2000-01-01T00:00:00.000000Z",`
		const allow = `"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"why it may",`
		const old = `"watchfan.io/user-unknown":"kube-apiserver has no SelfSubjectReview: it is older than 1.28"}`
		next(`"auditID":"three","stage":"ResponseStarted",` + watch +
			`"stageTimestamp":"2000-01-01T00:00:00.000000Z",` + allow + old)
		time.Sleep(time.Minute)
		const ended = `"auditID":"three","stage":"ResponseComplete",` + watch +
			`"stageTimestamp":"2000-01-01T00:01:00.000000Z",` + allow
		a.WatchEnded(event, fanout.Revoked, "why it may not")
		next(ended + `"watchfan.io/ended-because":"revoked","watchfan.io/revoked-because":"why it may not",` + old)
		a.WatchEnded(event, fanout.Gone, "it was gone before")
		next(ended + `"watchfan.io/ended-because":"` + string(fanout.Gone) + `",` + old)

		x, r = readOf(t, auth.Identity{Kind: auth.KindOwn}, "/api/v1/pods")
		r.Decision = auth.NewAuthorizer(nil, auth.NewKnownTokens(), &auth.Options{}, false, auth.NewMetrics(metrics.NewSet()),
			proxytest.Guard()).Authorize(t.Context(), r.ID, r.Request)
		a.Served(x, r)
		a.Close()
		line := f.b.String()
		if !strings.Contains(line, `"username":"system:serviceaccount:w:w"`) ||
			!strings.Contains(line, `/reason":"the proxy's own identity, whose rights`) || !f.closed {
			t.Errorf("got %s, closed: %v", line, f.closed)
		}

		var off *Log
		off.Served(x, r)
		event, _ = off.WatchBegan(x, r, "", http.StatusOK)
		off.WatchEnded(event, fanout.Gone, "")
		off.Refused(x, auth.Identity{}, asked(x), apistatus.Unauthorized())
		off.Close()
	})
}

// TestAuditRefused: a refused request of any kind is logged with its verb and its object.
func TestAuditRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f, _ := newTestAudit(nil)
		go a.Run()
		defer a.Close()
		g := func(method, target, want string) {
			t.Helper()
			x := proxytest.MustRead(t, "/")
			x.Method = method
			x.Target = target
			x.Header.Set("Authorization", "Basic c2VjcmV0")
			apistatus.Write(x, apistatus.Unauthorized())
			a.Refused(x, auth.Identity{Kind: auth.KindNobody}, asked(x), apistatus.Unauthorized())
			synctest.Wait()
			var line struct {
				AuditID, Stage, Verb, RequestURI string
				User                             map[string]any
				ObjectRef                        *auditObject
				ResponseStatus                   struct{ Code int }
			}
			text := f.b.String()
			f.b.Reset()
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			got := line.Verb
			if o := line.ObjectRef; o != nil {
				got = strings.Join([]string{line.Verb, o.APIGroup, o.APIVersion, o.Resource, o.Subresource,
					o.Namespace, o.Name}, " ")
			}
			if got != want || line.AuditID == "" || line.AuditID != x.Response.Header.Get("Audit-Id") ||
				line.Stage != stageStarted ||
				line.ResponseStatus.Code != 401 || len(line.User) != 0 || strings.Contains(text, "c2VjcmV0") {
				t.Errorf("%s %s: got %s, want %s\n%s", method, target, got, want, text)
			}
		}
		g("GET", "/api/v1/namespaces/a/pods/x/log?follow=1", "get  v1 pods log a x")
		g("POST", "/apis/apps/v1/namespaces/a/deployments", "create apps v1 deployments  a ")
		g("GET", "/api/v1/pods?watch=1&resourceVersion=x&fieldSelector=metadata.name%3Dx", "watch  v1 pods   x")
		g("GET", "http://elsewhere/api/v1/nodes", "list  v1 nodes   ")
		g("OPTIONS", "*", "options")
		g("GET", "/%zz?%", "get")

		x := proxytest.MustRead(t, "/")
		a.Refused(x, auth.Identity{}, asked(x), apistatus.TooManyRequests("later"))
		synctest.Wait()
		if want := `"user":{"username":"system:anonymous","groups":["system:unauthenticated"]},`; !strings.Contains(f.b.String(), want) {
			t.Errorf("without a credential: got %s, want %s", f.b.String(), want)
		}
	})
}

// TestAuditFallsBehind: no request waits for a file that hangs. Events that do not fit the queue
// are dropped and counted, and the log says so once a minute.
func TestAuditFallsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f, log := newTestAudit(nil)
		go a.Run()
		stuck := make(chan struct{})
		f.set(func(p []byte) (int, error) { <-stuck; return len(p), nil })
		dropped := a.metrics.dropped
		x, r := readOf(t, ofCertificate("jane"), "/api/v1/pods", "User-Agent: "+strings.Repeat("u", 3<<10))
		n := 0
		for ; dropped.Get() == 0; n++ {
			a.Served(x, r)
		}
		if n < maxAuditQueue/(4<<10) || a.bytes > maxAuditQueue {
			t.Errorf("%d events fit, of %d bytes", n, a.bytes)
		}
		for range 100 {
			a.Served(x, r)
		}
		if got := strings.Count(log.String(), "Dropped audit events"); got != 1 || dropped.Get() != 101 {
			t.Errorf("%d lines about %d events:\n%s", got, dropped.Get(), log)
		}
		time.Sleep(auditComplaint)
		a.Served(x, r)
		text := log.String()
		if strings.Count(text, "Dropped audit events") != 2 || !strings.Contains(text, "events=101") {
			t.Errorf("got %s", text)
		}

		close(stuck)
		synctest.Wait()
		if got := bytes.Count(f.b.Bytes(), []byte("\n")); got != n-1 || a.bytes != 0 {
			t.Errorf("%d lines of %d events, %d bytes left", got, n-1, a.bytes)
		}

		a.Close()
	})
}

// TestAuditQueueBounds: what is queued is within the bound, whatever of a request is long.
func TestAuditQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f, _ := newTestAudit(nil)
		go a.Run()
		stuck := make(chan struct{})
		f.set(func(p []byte) (int, error) { <-stuck; return len(p), nil })
		const long = 1 << 20
		x := proxytest.MustRead(t, "/version")
		for n := 1; a.metrics.dropped.Get() == 0; n++ {
			// As the refusal of an impersonation, which quotes a header.
			st := apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, strings.Repeat("m", long))
			st.Details = &metav1.StatusDetails{Name: strings.Repeat("n", long)}
			a.Refused(x, ofCertificate("jane"), asked(x), st)
			if n*2*long > 2*maxAuditQueue {
				t.Errorf("%d events of at least %d bytes wait", n, 2*long)
				break
			}
		}
		close(stuck)
		a.Close()
	})
}

// TestAuditLineTooLong: a line that is longer than a file may be is lost alone.
func TestAuditLineTooLong(t *testing.T) {
	opts := Options{AuditLogPath: filepath.Join(t.TempDir(), "audit.log"), AuditLogMaxSize: 1}
	a, err := NewLog(&opts, nil, NewMetrics(metrics.NewSet()), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"/before", "/long?" + strings.Repeat("&", 1<<18), "/behind"} {
		x := proxytest.MustRead(t, "/")
		x.Target = uri
		a.Refused(x, ofCertificate("jane"), asked(x), apistatus.BadRequest("no"))
	}
	go a.Run()
	a.Close()
	got, err := os.ReadFile(opts.AuditLogPath)
	if text := string(got); err != nil || strings.Count(text, "\n") != 2 || !strings.Contains(text, "/before") || !strings.Contains(text, "/behind") ||
		a.metrics.events.Get() != 2 || a.metrics.dropped.Get() != 1 {
		t.Errorf("%d events written, %d dropped, %v: %.1000s", a.metrics.events.Get(), a.metrics.dropped.Get(), err, text)
	}
}

// TestOpenAuditLog: a path that cannot be written is an error at once. A file is rotated, and only
// its owner can read it. A device is not rotated.
func TestOpenAuditLog(t *testing.T) {
	dir := t.TempDir()
	opts := Options{AuditLogMode: AuditBatch, AuditLogMaxAge: 366, AuditLogMaxBackup: 100}
	open := func(path string) (io.WriteCloser, error) {
		opts.AuditLogPath = path
		a, err := NewLog(&opts, nil, NewMetrics(metrics.NewSet()), slog.New(slog.DiscardHandler))
		if err != nil || a == nil {
			return nil, err
		}
		return a.out, nil
	}
	if out, err := open(""); out != nil || err != nil {
		t.Errorf("without a path: %v, %v", out, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "nosuch", "audit.log"),
		filepath.Join(dir, "file", "audit.log")} {
		if _, err := open(path); err == nil || !strings.Contains(err.Error(), "--audit-log-path: ") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	opts.AuditLogMaxSize = 1
	path := filepath.Join(dir, "audit.log")
	rotated, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	if l, ok := rotated.(*lumberjack.Logger); !ok || l.Filename != path || l.MaxSize != 1 || l.MaxAge != 366 || l.MaxBackups != 100 {
		t.Errorf("a file is written to by %+v", rotated)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	opts.AuditLogMaxAge, opts.AuditLogMaxSize = 999_999, math.MaxInt // for ever, as an operator may write it
	if rotated, err = open(path); err != nil {
		t.Fatal(err)
	}
	if l := rotated.(*lumberjack.Logger); time.Duration(l.MaxAge)*24*time.Hour < 200*365*24*time.Hour || int64(l.MaxSize)<<20 <= 0 {
		t.Errorf("files are kept for %d days and %d megabytes", l.MaxAge, l.MaxSize)
	}
	out, err := open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	opts.AuditLogMaxSize = 0
	never, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []io.Closer{out, never} {
		if _, ok := out.(*os.File); !ok {
			t.Errorf("what is not rotated is written to by %T", out)
		}
		_ = out.Close()
	}
}
