package exchange

import "net/http"

// Refusal is the response to a request that its protocol rejects: a status code, and the message of
// the body.
type Refusal struct {
	Code    int
	Message string
}

// BadRequest returns the refusal of a request that is not what HTTP, or kube-apiserver, demands.
func BadRequest(message string) *Refusal { return &Refusal{http.StatusBadRequest, message} }

// The refusals of all protocols. A head is too long if it is longer than kube-apiserver's may be, or
// than may be held of it.
var (
	BadTarget   = BadRequest("the request target must be a path, whose escapes are whole")
	BadHost     = BadRequest("malformed Host header")
	TypeTwice   = BadRequest("the request says more than once what its body is")
	NoConnect   = &Refusal{http.StatusMethodNotAllowed, "the server does not allow this method on the requested resource"}
	HeadTooLong = &Refusal{http.StatusRequestHeaderFieldsTooLarge, "the request's header is too long"}
	Panicked    = &Refusal{http.StatusInternalServerError, ErrPanicked.Error()}
)
