package request

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Outcome is how a part of the proxy ends a request: its response is there, it is refused, or it
// passes through to kube-apiserver. The zero Outcome is none of these, and the next part goes on. A
// refusal is written and recorded in one place only, which is the server's.
type Outcome struct {
	answered bool
	refusal  *metav1.Status
	why      Reason
}

// Answered is the outcome of a request whose response is there.
func Answered() Outcome { return Outcome{answered: true} }

// Refuse is the outcome of a request that is answered with st.
func Refuse(st *metav1.Status) Outcome { return Outcome{refusal: st} }

// PassThrough is the outcome of a request that kube-apiserver answers itself. why is not "".
func PassThrough(why Reason) Outcome { return Outcome{why: why} }

// Open reports whether nothing is decided yet.
func (o Outcome) Open() bool { return o == Outcome{} }

// Answered reports whether the response is there.
func (o Outcome) Answered() bool { return o.answered }

// Refusal returns the response to a refused request, nil if the request is not refused.
func (o Outcome) Refusal() *metav1.Status { return o.refusal }

// Why returns why the request passes through, "" if it does not.
func (o Outcome) Why() Reason { return o.why }
