package http2

import (
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// maxHeaderList is the limit of a head as HPACK counts it, with 32 bytes for each field. It is
	// kube-apiserver's, which has net/http's. A longer head is answered with 431 on its stream.
	maxHeaderList = exchange.MaxHeaderBytes + 10*32
	// maxString is the longest string that is decoded, as in net/http. A longer one ends the
	// connection.
	maxString = maxHeaderList
	// maxBlock is the limit of a header block's encoded bytes, and maxContinuations of its
	// CONTINUATION frames (CVE-2023-45288): four times as many as a head of the longest needs.
	maxBlock         = 2 * maxHeaderList
	maxContinuations = 4 * maxHeaderList / maxFrame
	// usualHead is the size from which a head counts for the client's address.
	usualHead = 16 << 10
	// maxTable is the size of the dynamic tables, the default of HPACK.
	maxTable = 4096
)

// headDecoder decodes header blocks. It checks the fields as they come (RFC 9113, section 8.2 and
// 8.3), and counts their bytes and their number before it keeps them: HPACK lets a few bytes stand
// for very many fields (CVE-2026-49975).
type headDecoder struct {
	hpack *hpack.Decoder
	hold  func(bytes int) bool // says how large the head is, and reports whether it may be held

	// Of the block that is being decoded.
	fields    []exchange.Field // without pseudo-header fields and cookies
	cookies   []string
	bytes     int
	lines     int
	over      bool   // more bytes or lines than the limits, or than may be held; fields is cut off
	malformed string // why the head is malformed; "" if it is not
	pseudo    [pseudoFields]string
	has       [pseudoFields]bool

	saidHost bool // a host field has come
}

// The pseudo-header fields of a request.
const (
	method = iota
	scheme
	path
	authority
	pseudoFields
)

var pseudoNames = map[string]int{":method": method, ":scheme": scheme, ":path": path, ":authority": authority}

func (d *headDecoder) init(hold func(bytes int) bool) {
	d.hold = hold
	d.hpack = hpack.NewDecoder(maxTable, d.emit)
	d.hpack.SetMaxStringLength(maxString)
}

// reset forgets a header block. A connection keeps nothing of a request that it has read.
func (d *headDecoder) reset() {
	clear(d.fields)
	fields := d.fields[:0]
	if cap(fields) > 64 {
		fields = nil
	}
	*d = headDecoder{hpack: d.hpack, hold: d.hold, fields: fields}
	d.hpack.SetEmitEnabled(true)
}

func (d *headDecoder) emit(f hpack.HeaderField) {
	d.lines++
	d.bytes += int(f.Size())
	if d.bytes > maxHeaderList || d.lines > exchange.MaxHeaderLines || !d.hold(d.bytes) {
		d.over = true
		d.hpack.SetEmitEnabled(false)
		return
	}
	if d.malformed == "" {
		d.malformed = d.take(f)
	}
}

// take keeps a field, or returns why it makes the head malformed.
func (d *headDecoder) take(f hpack.HeaderField) (malformed string) {
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return "a field's value has control characters"
	}
	if strings.HasPrefix(f.Name, ":") {
		i, known := pseudoNames[f.Name]
		if !known || d.has[i] || len(d.fields) > 0 || len(d.cookies) > 0 {
			return "a pseudo-header field is unknown, comes twice or comes late"
		}
		d.pseudo[i], d.has[i] = f.Value, true
		return ""
	}
	if !httpguts.ValidHeaderFieldName(f.Name) || strings.ToLower(f.Name) != f.Name {
		return "a field's name is not a token in lower case"
	}
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return "a field concerns a connection of HTTP/1.1"
	case "te":
		if f.Value != "trailers" && f.Value != "" {
			return "te names more than trailers"
		}
	case "cookie":
		d.cookies = append(d.cookies, f.Value)
		return ""
	}
	d.fields = append(d.fields, exchange.Field{Name: f.Name, Value: strings.Trim(f.Value, " \t")})
	return ""
}

// checkPseudo returns why the pseudo-header fields of a request are malformed; "" if they are not.
func (d *headDecoder) checkPseudo() string {
	connect := d.pseudo[method] == http.MethodConnect
	switch {
	case d.malformed != "":
		return d.malformed
	case !httpguts.ValidHeaderFieldName(d.pseudo[method]), // a token, as a method is
		!connect && (d.pseudo[path] == "" || d.pseudo[scheme] != "https" && d.pseudo[scheme] != "http"):
		return "a pseudo-header field is missing or wrong"
	}
	return ""
}

// readHead fills x from the decoded head. It returns what is wrong with the head, nil if nothing
// is. The rules are those of HTTP/1.1; see readHead in package http1.
func (d *headDecoder) readHead(x *exchange.Exchange) (expects bool, wrong *exchange.Refusal) {
	x.Method, x.Target, x.Protocol = d.pseudo[method], d.pseudo[path], exchange.HTTP20
	x.ContentLength = -1
	if d.has[authority] {
		x.Header.Add("Host", d.pseudo[authority])
	}
	switch _, ok := exchange.CutTarget(x.Target); {
	case d.over:
		wrong = exchange.HeadTooLong
	case x.Method == http.MethodConnect:
		wrong = exchange.NoConnect
	case !ok || x.Target[0] != '/' || strings.ContainsAny(x.Target, " \t"):
		wrong = exchange.BadTarget
	case !httpguts.ValidHostHeader(d.pseudo[authority]):
		wrong = exchange.BadHost
	}
	for _, f := range d.fields {
		st := d.checkField(x, f)
		if wrong == nil {
			wrong = st
		}
		if f.Name == "expect" { // kube-apiserver meets 100-continue, and ignores others
			expects = expects || strings.EqualFold(f.Value, "100-continue")
		} else if f.Name != "host" || !d.has[authority] {
			x.Header.Add(f.Name, f.Value)
		}
	}
	if len(d.cookies) > 0 {
		x.Header.Add("Cookie", strings.Join(d.cookies, "; "))
	}
	return expects, wrong
}

func (d *headDecoder) checkField(x *exchange.Exchange, f exchange.Field) *exchange.Refusal {
	switch f.Name {
	case "host":
		if d.saidHost || !httpguts.ValidHostHeader(f.Value) || d.has[authority] && f.Value != d.pseudo[authority] {
			return exchange.BadHost
		}
		d.saidHost = true
	case "content-type":
		if x.Header.Has(f.Name) {
			return exchange.TypeTwice
		}
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if x.Header.Has(f.Name) || err != nil {
			return exchange.BadRequest("the request does not say once how long its body is")
		}
		x.ContentLength = int64(n)
	}
	return nil
}
