package audit

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Options configures the audit log and the rotation of its files; see AddTo and Log. The defaults are
// kube-apiserver's, but for the mode, which is blocking there.
type Options struct {
	AuditLogPath string // empty: no audit log
	AuditLogMode string // AuditBatch, AuditBlocking or AuditBlockingStrict

	AuditLogMaxAge, AuditLogMaxBackup, AuditLogMaxSize int // days, files, megabytes; 0 is no limit
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Audit")
	t.String(&o.AuditLogPath, "audit-log-path", "", "`FILE` for the audit log of reads from the cache, "+
		"one audit.k8s.io/v1 Event a line; - is standard output (default none)")
	t.String(&o.AuditLogMode, "audit-log-mode", AuditBatch, "`MODE` of writing the audit log: "+
		"batch drops and counts events that are not written in time, blocking writes each event before its response, "+
		"blocking-strict also fails requests whose event cannot be written", option.OneOf(auditModes...))
	t.Int(&o.AuditLogMaxAge, "audit-log-maxage", 366,
		"`DAYS` to keep old files of the audit log; 0 is no limit", option.AtLeast(0))
	t.Int(&o.AuditLogMaxBackup, "audit-log-maxbackup", 100,
		"`NUMBER` of old files of the audit log to keep; 0 is no limit", option.AtLeast(0))
	t.Int(&o.AuditLogMaxSize, "audit-log-maxsize", 100,
		"`MEGABYTES` after which the audit log begins a new file; 0 is never", option.AtLeast(0))
}

// Modes of the audit log, named as in kube-apiserver's --audit-log-mode.
const (
	AuditBatch          = "batch"           // events are queued, or dropped and counted
	AuditBlocking       = "blocking"        // written before the response; failures are counted
	AuditBlockingStrict = "blocking-strict" // like blocking; failures also fail the request
)

var auditModes = []string{AuditBatch, AuditBlocking, AuditBlockingStrict}

// add writes an event, or queues it in batch mode. It returns false if the event is lost and its
// request must fail.
func (a *Log) add(e *Event) (ok bool) {
	switch a.mode {
	case AuditBlocking:
		a.writeNow(e)
		return true
	case AuditBlockingStrict:
		return a.writeNow(e)
	}
	a.enqueue(e)
	return true
}

// writeNow writes one event and reports success. It blocks until the token's owner is known and the
// file has taken the line.
func (a *Log) writeNow(e *Event) bool {
	line := e.appendLine(nil)
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.writers.Add(1) // under mu: Run waits for the writers after closed is set
	}
	a.mu.Unlock()
	err := errAuditClosed
	if !closed {
		err = a.write(line)
		a.writers.Done()
	}
	a.count(1, err)
	return err == nil
}

// write writes whole lines. After a partial write it starts with a newline, to end the torn line.
func (a *Log) write(lines []byte) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	if a.torn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := a.out.Write(lines)
	a.torn = err != nil && (n > 0 || a.torn)
	return err
}

// notAudited returns the Status for a request whose event cannot be written, in kube-apiserver's
// words (k8s.io/apiserver pkg/endpoints/filters/audit.go).
func notAudited(x *exchange.Exchange) *metav1.Status {
	return apistatus.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		fmt.Sprintf("Internal Server Error: %q: failed to store audit event", x.URI()))
}
