package passthrough

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// trimmedAnswer is the size, in bytes, up to which an answer in a view is collected, to leave out
// the view's fields. kube-apiserver compresses larger ones anyway for clients that accept gzip.
const trimmedAnswer = 256 << 10

// trim leaves the fields of the request's view out of the answer in x, which has come with resp, if
// it is a small object or list. Any other answer stays whole.
func trim(x *exchange.Exchange, asked *request.Request, resp *http.Response) {
	if asked.View == nil || x.Method != http.MethodGet || asked.MetricVerb() == "other" || resp.StatusCode != http.StatusOK ||
		resp.ContentLength <= 0 || resp.ContentLength > trimmedAnswer || resp.Header.Get("Content-Encoding") != "" {
		return
	}
	encoding := framing.JSON
	switch mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); mediaType {
	case "application/json":
	case "application/vnd.kubernetes.protobuf":
		encoding = framing.Protobuf
	default:
		return
	}
	variant, err := asked.View.Variant(asked.GVR, encoding, false, false)
	if err != nil || variant.Trim == nil {
		return
	}
	from := x.Response.Reader
	body, err := io.ReadAll(io.LimitReader(from, resp.ContentLength))
	if err != nil || int64(len(body)) < resp.ContentLength {
		x.Response.Reader = collected{io.MultiReader(bytes.NewReader(body), from), from} // whose error comes again
		return
	}
	if parts, ok := variant.Trim.Body(encoding, body); ok {
		body = bytes.Join(parts, nil)
	}
	x.Response.Reader, x.Response.Length = collected{bytes.NewReader(body), from}, int64(len(body))
}

// collected is a body that has been read, or its beginning.
type collected struct {
	io.Reader
	io.Closer // of the body that it was read from
}
