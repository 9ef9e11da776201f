package audit

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// Modes of the audit log, as kube-apiserver's --audit-log-mode has them.
const (
	AuditBatch          = "batch"           // events are queued; what does not fit is dropped and counted
	AuditBlocking       = "blocking"        // an event is written before its response begins, or counted if that fails
	AuditBlockingStrict = "blocking-strict" // and its request fails if that fails
)

var auditModes = []string{AuditBatch, AuditBlocking, AuditBlockingStrict}

// add writes an event down, or in batch mode queues it. It reports false if the event is lost and
// its request must fail.
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

// writeNow writes one event, and reports whether it is written. The caller waits until it is known
// whose a token is, and for the file.
func (a *Log) writeNow(e *Event) bool {
	line := e.appendLine(nil)
	a.mu.Lock()
	err := errAuditClosed
	if !a.closed {
		a.writers.Add(1) // before close waits for them
		a.mu.Unlock()
		err = a.write(line)
		a.writers.Done()
		a.mu.Lock()
	}
	complain := func(error) {}
	if err != nil {
		complain = a.lostLocked(1)
	} else {
		auditEvents.Inc()
	}
	a.mu.Unlock()
	complain(err)
	return err == nil
}

// write writes whole lines. Those that follow one that was written in part begin a new one.
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

// notAudited answers a request that cannot be written down, in kube-apiserver's words
// (k8s.io/apiserver pkg/endpoints/filters/audit.go).
func notAudited(x *exchange.Exchange) *metav1.Status {
	return apistatus.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		fmt.Sprintf("Internal Server Error: %q: failed to store audit event", x.Target))
}
