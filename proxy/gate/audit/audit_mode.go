package audit

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

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
