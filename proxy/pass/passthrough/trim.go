package passthrough

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// trimmedAnswer is the size, in bytes, up to which an answer in a view is collected, to leave out
// the view's fields. kube-apiserver compresses larger ones anyway for clients that accept gzip.
const trimmedAnswer = 256 << 10

// trim makes of the answer in x, which has come with resp, what the request's view has of it, if it is a
// small object or list. Any other answer stays whole, unless the view has a part of the objects only: then
// it is refused. So is a watch; see serveDetached. It returns the Status that x has then in the place of the answer,
// nil otherwise.
func trim(x *exchange.Exchange, asked *request.Request, resp *http.Response) (instead *metav1.Status) {
	if !trims(x, asked) || resp.StatusCode != http.StatusOK {
		return nil
	}
	body, ok := trimmed(x, asked, resp, selects(asked))
	switch {
	case ok && body == nil:
		instead = apistatus.NotFound(asked.GVR, asked.Name)
	case ok:
		x.Response.Reader, x.Response.Length = upstream.ReadCloser(bytes.NewReader(body), x.Response.Reader), int64(len(body))
	case selects(asked):
		instead = unselected(asked)
	}
	if instead != nil {
		x.Response.Reset()
		apistatus.Write(x, instead)
	}
	return instead
}

// trims reports whether a request reads objects in a view.
func trims(x *exchange.Exchange, asked *request.Request) bool {
	return asked.View != nil && x.Method == http.MethodGet && asked.MetricVerb() != "other"
}

// selects reports whether the view of a request has a part of the objects only.
func selects(asked *request.Request) bool { return asked.View.Selects(asked.GVR.GroupResource()) }

var errUnselected = errors.New("the view has a part of the objects only")

// unselected is the answer to a request in such a view that kube-apiserver has answered with others too.
func unselected(asked *request.Request) *metav1.Status {
	return apistatus.ServiceUnavailable("the view " + asked.View.Name() + " has a part of the objects only, which " +
		"this proxy can't tell from the others in this answer of kube-apiserver")
}

// trimmed returns what the view has of an answer; nil for one object that it does not have. ok is false if
// that can't be told. whole says that an answer whose length is not known may be waited for.
func trimmed(x *exchange.Exchange, asked *request.Request, resp *http.Response, whole bool) (body []byte, ok bool) {
	if resp.ContentLength == 0 || resp.ContentLength < 0 && !whole || resp.ContentLength > trimmedAnswer ||
		resp.Header.Get("Content-Encoding") != "" || asked.IsWatch() {
		return nil, false
	}
	encoding, ok := framing.EncodingOf(resp.Header.Get("Content-Type"))
	if !ok || encoding == framing.CBOR {
		return nil, false
	}
	metadata := strings.Contains(x.Header.Get("Accept"), "as=PartialObjectMetadata")
	variant, err := asked.View.Variant(asked.GVR, encoding, metadata, false)
	if err != nil || variant.Trim == nil || variant.Namespaces != nil {
		return nil, false
	}
	from := x.Response.Reader
	body, err = io.ReadAll(io.LimitReader(from, trimmedAnswer+1))
	if err != nil || int64(len(body)) < resp.ContentLength || len(body) > trimmedAnswer {
		x.Response.Reader = upstream.ReadCloser(io.MultiReader(bytes.NewReader(body), from), from) // whose error comes again
		return nil, false
	}
	parts, ok := variant.Trim.Body(encoding, body)
	switch {
	case !ok:
		x.Response.Reader = upstream.ReadCloser(bytes.NewReader(body), from)
		return nil, false
	case parts == nil:
		return nil, true
	}
	return bytes.Join(parts, nil), true
}
