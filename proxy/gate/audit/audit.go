package audit

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
	"gopkg.in/natefinch/lumberjack.v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// maxAuditQueue bounds the queued events, in bytes: about 30,000 events.
	maxAuditQueue = 32 << 20
	// auditBatch is the approximate size of one write, in bytes.
	auditBatch = 64 << 10
	// auditFlush limits how long the queued events may take to be written on shutdown.
	auditFlush = 5 * time.Second
	// auditComplaint is the minimum time between two log lines about events that were not written.
	auditComplaint = time.Minute
)

var (
	auditEvents = exposition.Describe("counter", "watchfan_audit_events_total",
		"Events written to the audit log.")
	auditDropped = exposition.Describe("counter", "watchfan_audit_events_dropped_total",
		"Events missing from the audit log because the file accepted them too slowly or not at all. The log names the cause.")
)

// Metrics are the metrics of a Log.
type Metrics struct{ events, dropped *metrics.Counter }

// NewMetrics adds the metrics to a server's set.
func NewMetrics(set *metrics.Set) *Metrics {
	return &Metrics{events: set.NewCounter(auditEvents), dropped: set.NewCounter(auditDropped)}
}

// Log is the audit log. Each line is an audit.k8s.io/v1 Event at level Metadata. The log covers
// requests that kube-apiserver does not see, or does not see under the client's name:
//
//	get, list from a cache   ResponseComplete, when the response is ready: its last byte may not have left yet
//	watch from a cache       ResponseStarted; at the end ResponseComplete with the annotation watchfan.io/ended-because: a fanout.Reason
//	passed through in a      ResponseComplete, when kube-apiserver's response begins, with the annotation watchfan.io/passed-through;
//	user's name              a lasting response has ResponseStarted then, and ResponseComplete when it ends: see Passed
//	refused by the proxy     ResponseComplete: 403 and all others that kube-apiserver never sees; ResponseStarted alone: 401, as in kube-apiserver
//
// The reason why a read is allowed is that of the review that allows it, as kube-apiserver writes it.
// The annotation watchfan.io/review-ids has the auditIDs of that review, and of those that let the client
// act as another user, in kube-apiserver's audit log. A read that is allowed from memory has those of the
// reviews that are remembered.
// Both lines of a watch give the reason why it was allowed to begin. If the watch is revoked, the second
// line gives the reason in watchfan.io/revoked-because.
//
// All other passed-through requests are written by kube-apiserver, with the client's address in
// sourceIPs and with the auditID that the client receives. One that gets a 503 because kube-apiserver
// cannot be reached is in neither log, nor is input that is not readable as HTTP. There is no audit
// policy: a level below Metadata is no log, and the levels above it contain objects, which are never
// written.
//
// In the default mode, batch, no request waits for the log. Events are queued, and one goroutine
// encodes and writes them. An event is dropped if it does not fit into maxAuditQueue or cannot be
// written. Dropped events are counted, and logged at most once a minute. This is kube-apiserver's
// batch mode. kube-apiserver's default for files is blocking. Here one hanging disk would then hold up
// thousands of watches. --audit-log-mode selects another mode:
//
//	blocking          each event is written before its response begins; a failed write is counted as above, and the request goes on
//	blocking-strict   the same, but the request fails with 500. A request passed through in a user's name is also written before it goes
//	                  upstream, as stage RequestReceived: nothing is done upstream without its author in the log
//
// In every mode the end of a watch is written by the goroutine that gives the watch's connection
// back. It delays no other client. In both blocking modes a hanging file delays all audited
// requests for as long as it hangs.
//
// A nil Log writes nothing. Its methods may be called from any goroutine.
type Log struct {
	// Immutable.
	out     io.WriteCloser
	mode    string // "" means AuditBatch
	owners  *auth.Owners
	metrics *Metrics
	log     *slog.Logger
	wake    chan struct{} // capacity 1; non-empty if there may be work; never closed
	donec   chan struct{} // closed when Run has returned; never sent on

	writing sync.Mutex // serializes writes; no other lock is taken under it
	torn    bool       // guarded by writing: the last write failed in the middle of a line

	lost       atomic.Int64 // events since the last log line about them
	complaints rate.Sometimes

	writers sync.WaitGroup // requests that write their own events
	mu      sync.Mutex
	queue   []*Event
	bytes   int // size of queue and of the events that Run is writing
	closed  bool
}

// NewLog opens the audit log that opts names. It returns nil if opts names none.
func NewLog(opts *Options, owners *auth.Owners, m *Metrics, log *slog.Logger) (*Log, error) {
	if opts.AuditLogPath == "" {
		return nil, nil
	}
	out, err := openAuditLog(opts)
	if err != nil {
		return nil, fmt.Errorf("--audit-log-path: %w", err)
	}
	return &Log{
		out: out, mode: opts.AuditLogMode, owners: owners, metrics: m, log: log,
		wake: make(chan struct{}, 1), donec: make(chan struct{}), complaints: rate.Sometimes{Interval: auditComplaint},
	}, nil
}

// openAuditLog opens the file. Opening it now reports an unwritable file at startup. Files are
// rotated by kube-apiserver's own library for this (lumberjack), and are named and kept alike.
// Pipes and devices are not rotated.
func openAuditLog(opts *Options) (io.WriteCloser, error) {
	if opts.AuditLogPath == "-" {
		return struct {
			io.Writer
			io.Closer
		}{os.Stdout, io.NopCloser(nil)}, nil
	}
	// O_RDWR also opens a pipe that has no reader yet, without waiting for one.
	f, err := os.OpenFile(opts.AuditLogPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
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
	return &lumberjack.Logger{Filename: opts.AuditLogPath, MaxBackups: opts.AuditLogMaxBackup,
		MaxAge: min(opts.AuditLogMaxAge, mostDays), MaxSize: min(opts.AuditLogMaxSize, mostMegabytes)}, nil
}

// What lumberjack computes with more than these overflows. It would take every old file for too old, or every
// write for too long.
const (
	mostDays      = int(math.MaxInt64 / (24 * time.Hour)) // 292 years
	mostMegabytes = math.MaxInt32
)

// Read is a read that is served from a cache: the parts of it that are audited. It is immutable.
type Read struct {
	Request  *request.Request
	ID       auth.Identity
	Decision auth.Decision // allows the read
}

// Served records a get or list that has been answered from a cache. If the event cannot be written
// and the mode is AuditBlockingStrict, the response becomes an error.
func (a *Log) Served(x *exchange.Exchange, r Read) {
	if a == nil {
		return
	}
	e := a.read(x, r, x.Response.Header.Get("Audit-Id"))
	e.Stage, e.code = stageComplete, x.Response.Code()
	if e.code == http.StatusNotFound {
		e.ResponseStatus = apistatus.NotFound(r.Request.GVR, r.Request.Name)
	}
	if !a.add(e) {
		apistatus.Write(x, notAudited(x))
	}
}

// WatchBegan records the start of a watch that is served from a cache, with the code of its
// response. The result began is for WatchEnded; it is nil without an audit log. The caller counts its
// LongHead. If refused is not nil, the watch must not begin, and refused is the response.
func (a *Log) WatchBegan(x *exchange.Exchange, r Read, auditID string, code int) (began *Event, refused *metav1.Status) {
	if a == nil {
		return nil, nil
	}
	e := a.read(x, r, auditID)
	e.Stage, e.code = stageStarted, code
	if !a.add(e) {
		return nil, notAudited(x)
	}
	return e, nil
}

// WatchEnded records the end of the watch that began with e, and the reason. revokedBecause is used
// only if the watch was revoked.
func (a *Log) WatchEnded(e *Event, reason fanout.Reason, revokedBecause string) {
	if a == nil {
		return
	}
	end := *e
	end.Stage, end.endedBecause, end.StageTimestamp = stageComplete, reason, metav1.NowMicro()
	if reason == fanout.Revoked {
		end.revokedBecause = revokedBecause
	}
	a.add(&end)
}

// Refused records a request that the proxy answers with st and does not pass through, even if the
// request was meant for kube-apiserver.
func (a *Log) Refused(x *exchange.Exchange, id auth.Identity, req *request.Request, st *metav1.Status) {
	if a == nil {
		return
	}
	e := a.event(x, id, req, x.Response.Header.Get("Audit-Id"))
	e.Stage, e.code, e.ResponseStatus = stageComplete, int(st.Code), st
	// kube-apiserver writes this stage alone for a 401 (k8s.io/apiserver
	// pkg/endpoints/filters/authn_audit.go).
	if st.Code == http.StatusUnauthorized {
		e.Stage = stageStarted
	}
	a.add(e)
}

// read returns the event of a read that is served from a cache.
func (a *Log) read(x *exchange.Exchange, r Read, auditID string) *Event {
	e := a.event(x, r.ID, r.Request, auditID)
	e.allowed, e.reason = r.Decision.Allowed(), r.Decision.Reason()
	if id := r.Decision.ReviewID(); id != "" {
		e.reviews = append(slices.Clip(e.reviews), id)
	}
	return e
}

// event returns an event with the fields that all events have. It keeps no other part of the
// request head in memory.
func (a *Log) event(x *exchange.Exchange, id auth.Identity, req *request.Request, auditID string) *Event {
	e := &Event{
		RequestReceivedTimestamp: metav1.NewMicroTime(x.Received),
		StageTimestamp:           metav1.NowMicro(),
		AuditID:                  auditID,
		Verb:                     req.Verb,
		ObjectRef:                objectOf(req),
		RequestURI:               x.URI(),
		UserAgent:                strings.Clone(auth.Truncated(x.Header.Get("User-Agent"), maxUserAgent)),
		User:                     id.User,
		reviews:                  id.Reviews,

		remote:       x.Conn.RemoteAddr(),
		forwardedFor: strings.Clone(x.Header.Get("X-Forwarded-For")),
		realIP:       strings.Clone(x.Header.Get("X-Real-Ip")),
	}
	if id.By != nil {
		e.User, e.ImpersonatedUser = id.By, id.User
	}
	switch {
	case id.Kind == auth.KindAnonymous:
		e.User = auth.Anonymous
	case id.Kind == auth.KindOwn, id.Kind == auth.KindToken && id.Token != "":
		e.owner = a.owners.Of(id)
	}
	return e
}

// enqueue queues an event. It drops the event if the queue is full or the log is closed.
func (a *Log) enqueue(e *Event) {
	size := e.size()
	a.mu.Lock()
	full := a.closed || a.bytes+size > maxAuditQueue
	if !full {
		a.queue, a.bytes = append(a.queue, e), a.bytes+size
	}
	a.mu.Unlock()
	if full {
		a.count(1, errAuditBehind)
		return
	}
	a.wakeUp()
}

func (a *Log) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// count counts n events as written, or as lost if err is not nil.
func (a *Log) count(n int, err error) {
	if err == nil {
		a.metrics.events.Add(n)
		return
	}
	a.metrics.dropped.Add(n)
	a.lost.Add(int64(n))
	a.complaints.Do(func() { a.log.Error("Dropped audit events", "events", a.lost.Swap(0), "err", err) })
}

var (
	errAuditBehind = fmt.Errorf("the audit log takes less than there is to write: %d bytes wait", maxAuditQueue)
	errAuditClosed = errors.New("the audit log is closed: the proxy is stopping")
)

// Run writes queued events until Close is called and the queue is written.
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
				before := len(b)
				if b = queue[n].appendLine(b); n > 0 && len(b)-before > auditBatch {
					b = b[:before] // it may be longer than a file: then it is lost alone
					break
				}
				size += queue[n].size()
				n++
			}
			clear(queue[:n])
			queue = queue[n:]
			err := a.write(b)
			a.mu.Lock()
			a.bytes -= size
			a.mu.Unlock()
			a.count(n, err)
		}
		if closed {
			a.writers.Wait()
			return
		}
	}
}

// Close stops accepting events and waits at most auditFlush for the queued ones to be written. It
// is called once, after Run was started.
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
