package audit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"gopkg.in/natefinch/lumberjack.v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/exposition"
	"github.com/watchfan/watchfan/proxy/request"
)

const (
	// maxAuditQueue bounds the events that wait to be written, in bytes: about 30,000 of them.
	maxAuditQueue = 32 << 20
	// auditBatch is about how much is written at once, in bytes.
	auditBatch = 64 << 10
	// auditFlush is how long what waits may still take to be written when we stop.
	auditFlush = 5 * time.Second
	// auditComplaint is the least time between two lines of the log about events that were not
	// written.
	auditComplaint = time.Minute
)

var (
	auditEvents = metrics.NewCounter(exposition.Describe("counter", "watchfan_audit_events_total",
		"Events written to the audit log."))
	auditDropped = metrics.NewCounter(exposition.Describe("counter", "watchfan_audit_events_dropped_total",
		"Events missing from the audit log because the file accepted them too slowly or not at all. The log names the cause."))
)

// Log writes down, as lines of audit.k8s.io/v1 Events at level Metadata, who reads what without
// kube-apiserver's knowledge:
//
//	get, list from a cache   ResponseComplete, when the answer is ready: its last byte may have yet to leave
//	watch from a cache       ResponseStarted, and when it ends ResponseComplete with the annotation watchfan.io/ended-because: a fanout.Reason
//	what is passed through   ResponseComplete, when kube-apiserver's answer begins, with the annotation watchfan.io/passed-through; what lasts
//	in somebody's name       has ResponseStarted then, and ResponseComplete when it ends: see passedAudit
//	what we refuse           ResponseComplete: 403 and whatever else is never seen by kube-apiserver; ResponseStarted alone: 401, as there
//
// Why a read is allowed is said in the words of the review that allows it, which kube-apiserver
// would write itself. Both lines of a watch say why it was allowed to begin; if it is revoked, the
// second says why in watchfan.io/revoked-because.
//
// All else that is passed through is kube-apiserver's to write, with this client's address in
// sourceIPs and the auditID that the client has been told. What can't be read as HTTP, or gets a
// 503 because kube-apiserver can't be reached, is in neither log. There is no policy: a level below
// Metadata is no log, and objects, which the levels above it hold, are never written.
//
// By default nobody waits for it. An event is queued, and one goroutine encodes and writes. What
// does not fit into maxAuditQueue, or can't be written, is dropped, counted, and complained of at
// most once a minute. That is kube-apiserver's batch mode. Kube-apiserver's default for files is to
// block, but there a request waits that has cost milliseconds anyway, while here one disk that
// hangs would hold up thousands of watches. The alert WatchfanAuditIncomplete tells of gaps, and
// --audit-log-mode chooses otherwise:
//
//	blocking          each event is written before its response begins. One that can't be is counted as above, and the request goes on
//	blocking-strict   so, but the request fails with 500. What is passed through in somebody's name is written down before it goes
//	                  upstream, as stage RequestReceived, so that nothing is done there whose author is not in the log
//
// The end of a watch is written by the goroutine that gives its connection back, and holds up
// nobody else in any mode. A file that hangs holds up all requests that are written down, for as
// long as it hangs, in both blocking modes.
//
// What it costs (go test -bench Audit -benchtime 100000x -count 10 ./proxy, 2 cores of an AMD EPYC
// that others used too; medians and spread):
//
//	off                        3 ns (2 to 4), no allocation
//	on, a certificate          0.6 µs (0.5 to 0.8), 7 allocations, 576 bytes until the event is written
//	on, a token of 1000 bytes  1.4 µs (1.3 to 1.7), 8 allocations, the token once more to hash it
//	the writer, each line      3.7 µs (3.5 to 4.0), 720 bytes
//
// An open watch costs the 576 bytes for as long as it lasts.
//
// A nil auditLog writes nothing. Its methods may be called from any goroutine.
type Log struct {
	// Immutable.
	out    io.WriteCloser
	mode   string // "" is AuditBatch
	owners *auth.Owners
	log    *slog.Logger
	wake   chan struct{} // holds one if there may be something to do; never closed
	donec  chan struct{} // closed when run has returned; never sent on

	writing sync.Mutex // of one at a time; no other lock is taken under it
	torn    bool       // guarded by writing: the last write has failed in the middle of a line

	writers    sync.WaitGroup // requests that write themselves
	mu         sync.Mutex
	queue      []*Event
	bytes      int // of queue, and of what run is writing
	closed     bool
	lost       int       // since complained
	complained time.Time // when the last line of the log was about lost events
}

// NewLog opens the audit log that opts name, nil for none.
func NewLog(opts *Options, owners *auth.Owners, log *slog.Logger) (*Log, error) {
	if opts.AuditLogPath == "" {
		return nil, nil
	}
	out, err := openAuditLog(opts)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return &Log{out: out, mode: opts.AuditLogMode, owners: owners, log: log, wake: make(chan struct{}, 1), donec: make(chan struct{})}, nil
}

// openAuditLog opens the file now, so that one that can't be written is known at the start. Files
// are rotated by the library that kube-apiserver has for it, and so are called and kept alike; a
// pipe or a device is not rotated.
func openAuditLog(opts *Options) (io.WriteCloser, error) {
	if opts.AuditLogPath == "-" {
		return struct {
			io.Writer
			io.Closer
		}{os.Stdout, io.NopCloser(nil)}, nil
	}
	f, err := os.OpenFile(opts.AuditLogPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // for reading too: a pipe without a reader is not waited for
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || opts.AuditLogMaxSize == 0 {
		return f, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &lumberjack.Logger{Filename: opts.AuditLogPath, MaxAge: opts.AuditLogMaxAge, MaxBackups: opts.AuditLogMaxBackup, MaxSize: opts.AuditLogMaxSize}, nil
}

// Read is a read that is served from a cache, as far as it is written down. It is not changed.
type Read struct {
	Request  *request.Request
	ID       auth.Identity
	Decision auth.Decision // the yes to it
	Arrived  time.Time
}

// Served writes down a get or list that has been answered from a cache. If it must not be answered
// without that, its response becomes an error.
func (a *Log) Served(x *exchange.Exchange, r Read) {
	if a == nil {
		return
	}
	e := a.read(x, r, x.Response.Header.Get("Audit-Id"))
	e.stage, e.code = stageComplete, x.Response.Code()
	if e.code == http.StatusNotFound {
		e.status = apistatus.NotFound(r.Request.GVR, r.Request.Name)
	}
	if !a.add(e) {
		apistatus.Write(x, notAudited(x))
	}
}

// WatchBegan writes down that a watch is served from a cache. watchEnded takes what it returns, nil
// without an audit log. refused says why the watch must not begin.
func (a *Log) WatchBegan(x *exchange.Exchange, r Read, auditID string) (began *Event, refused *metav1.Status) {
	if a == nil {
		return nil, nil
	}
	e := a.read(x, r, auditID)
	e.stage, e.code = stageStarted, http.StatusOK
	if !a.add(e) {
		return nil, notAudited(x)
	}
	return e, nil
}

// WatchEnded writes down why the watch has ended that began with e. revokedBecause is not looked at
// unless it was revoked.
func (a *Log) WatchEnded(e *Event, reason fanout.Reason, revokedBecause string) {
	if a == nil {
		return
	}
	end := *e
	end.stage, end.endedBecause, end.at = stageComplete, reason, time.Now()
	if reason == fanout.Revoked {
		end.revokedBecause = revokedBecause
	}
	a.add(&end)
}

// Refused writes down a request that is answered with st, although it may be one for
// kube-apiserver.
func (a *Log) Refused(x *exchange.Exchange, id auth.Identity, req *request.Request, st *metav1.Status) {
	if a == nil {
		return
	}
	e := a.event(x, id, req, x.Response.Header.Get("Audit-Id"))
	e.received, e.stage, e.code, e.status = x.Received, stageComplete, int(st.Code), st
	if st.Code == http.StatusUnauthorized { // kube-apiserver's only line of one (k8s.io/apiserver pkg/endpoints/filters/authn_audit.go)
		e.stage = stageStarted
	}
	a.add(e)
}

// read is the event of a read that is served from a cache.
func (a *Log) read(x *exchange.Exchange, r Read, auditID string) *Event {
	e := a.event(x, r.ID, r.Request, auditID)
	e.received, e.decision = r.Arrived, r.Decision
	return e
}

// event is what all events have in common. It keeps nothing of the head but what it says.
func (a *Log) event(x *exchange.Exchange, id auth.Identity, req *request.Request, auditID string) *Event {
	e := &Event{
		at:        time.Now(),
		auditID:   auditID,
		verb:      req.Verb,
		object:    objectOf(req),
		uri:       x.Target,
		userAgent: strings.Clone(x.Header.Get("User-Agent")),
		remote:    x.Conn.RemoteAddr(),
		kind:      id.Kind,
		user:      id.User,

		forwardedFor: strings.Clone(x.Header.Get("X-Forwarded-For")),
		realIP:       strings.Clone(x.Header.Get("X-Real-Ip")),
	}
	if id.By != nil {
		e.user, e.impersonated = id.By, id.User
	}
	if id.Kind == auth.KindOwn || id.Kind == auth.KindToken && id.Token != "" {
		e.owner = a.owners.Of(id)
	}
	return e
}

// enqueue queues an event, or drops it.
func (a *Log) enqueue(e *Event) {
	size := e.size()
	a.mu.Lock()
	if a.closed || a.bytes+size > maxAuditQueue {
		complaint := a.lostLocked(1)
		a.mu.Unlock()
		complaint(nil)
		return
	}
	a.queue, a.bytes = append(a.queue, e), a.bytes+size
	a.mu.Unlock()
	a.wakeUp()
}

func (a *Log) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// lostLocked counts lost events, and returns what logs them, to be called without the lock.
func (a *Log) lostLocked(n int) (complain func(error)) {
	auditDropped.Add(n)
	a.lost += n
	if now := time.Now(); now.Sub(a.complained) >= auditComplaint {
		lost := a.lost
		a.lost, a.complained = 0, now
		return func(err error) {
			if err == nil {
				err = errAuditBehind
			}
			a.log.Error("Dropped audit events", "events", lost, "err", err)
		}
	}
	return func(error) {}
}

var (
	errAuditBehind = fmt.Errorf("the audit log takes less than there is to write: %d bytes wait", maxAuditQueue)
	errAuditClosed = errors.New("the audit log is closed: the proxy is stopping")
)

// Run writes what is queued until close is called and all is written.
func (a *Log) Run() {
	defer close(a.donec)
	var b []byte
	for range a.wake {
		a.mu.Lock()
		queue, closed := a.queue, a.closed
		a.queue = nil
		a.mu.Unlock()
		for len(queue) > 0 {
			b = b[:0]
			n, size := 0, 0
			for n < len(queue) && len(b) < auditBatch {
				b = queue[n].appendLine(b)
				size += queue[n].size()
				n++
			}
			clear(queue[:n])
			queue = queue[n:]
			a.wrote(n, size, a.write(b))
		}
		if closed {
			a.writers.Wait()
			return
		}
	}
}

// wrote counts events that have been written, or that could not be.
func (a *Log) wrote(events, size int, err error) {
	complain := func(error) {}
	a.mu.Lock()
	a.bytes -= size
	if err != nil {
		complain = a.lostLocked(events)
	} else {
		auditEvents.Add(events)
	}
	a.mu.Unlock()
	complain(err)
}

// Close writes what waits, for as long as auditFlush, and takes no more. It is called once, after
// run was started.
func (a *Log) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.wakeUp()
	select {
	case <-a.donec:
		if err := a.out.Close(); err != nil {
			a.log.Error("Closed the audit log", "err", err)
		}
	case <-time.After(auditFlush):
		a.log.Error("Left the audit log unfinished", "err", os.ErrDeadlineExceeded)
	}
}
