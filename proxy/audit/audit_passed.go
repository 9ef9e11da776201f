package audit

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
)

// Passed writes down a request that is passed through in somebody's name: kube-apiserver's own
// audit log has the proxy's account as the user, and the client as the one that is impersonated, or
// not at all where the client acts as somebody else. Both logs have the same auditID. A nil
// passedAudit writes nothing. It is used by one goroutine at a time.
type Passed struct {
	audit *Log
	e     *Event
}

// Passing begins the record of a request that is about to be passed through in the name of id. It
// is nil for all whom kube-apiserver sees itself: those who bring a token, or nothing, and the
// proxy. Refused says why the request must not go on.
func (a *Log) Passing(x *exchange.Exchange, id auth.Identity, req *request.Request) (p *Passed, refused *metav1.Status) {
	if a == nil || id.User == nil {
		return nil, nil
	}
	auditID := apistatus.AuditID(x)
	x.Header.Set("Audit-Id", auditID) // kube-apiserver takes it, and answers with it
	e := a.event(x, id, req, auditID)
	e.received, e.passed = x.Received, true
	p = &Passed{a, e}
	if a.mode == AuditBlockingStrict { // what has been done cannot be undone for want of a line
		if !p.add(stageReceived, 0, nil) {
			return nil, notAudited(x)
		}
	}
	return p, nil
}

// Started writes down that kube-apiserver has begun to answer a request that lasts.
func (p *Passed) Started(code int) { p.add(stageStarted, code, nil) }

// Answered writes down how the request was answered.
func (p *Passed) Answered(code int) { p.add(stageComplete, code, nil) }

// Failed writes down that the request was not, or not completely, passed through, and answered here
// with st.
func (p *Passed) Failed(st *metav1.Status) { p.add(stageComplete, int(st.Code), st) }

// Left writes down that the request was ended before kube-apiserver had answered it: it may or may
// not have taken effect.
func (p *Passed) Left() { p.add(stageComplete, 0, nil) }

func (p *Passed) add(stage string, code int, st *metav1.Status) bool {
	if p == nil {
		return true
	}
	e := *p.e
	e.stage, e.code, e.status = stage, code, st
	if stage != stageReceived {
		e.at = time.Now()
	}
	return p.audit.add(&e)
}

// Lasting reports whether a response is one that kube-apiserver writes down twice, when it begins
// and when it ends.
func Lasting(resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode == http.StatusOK && resp.ContentLength < 0
}
