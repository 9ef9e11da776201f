package http2

import (
	"fmt"
	"strings"
	"testing"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// A head arrives as the client sent it, with Host first and cookies as one field.
func TestHead(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial()
	p.get(1, "/head?a=%2F", "cookie", "a=1", "accept", "application/json", "te", "trailers", "x-y", " padded ", "cookie", "b=2")
	if status := p.status(1); status != "200" {
		t.Fatalf("got %s", status)
	}
	d, _ := p.next().(*wire.DataFrame)
	want := "GET /head?a=%2F\nHost: localhost\naccept: application/json\nte: trailers\nx-y: padded\nCookie: a=1; b=2\n"
	if d == nil || string(d.Data()) != want {
		t.Errorf("got %v, want %q", d, want)
	}
}

// Malformed and ambiguous heads are rejected as RFC 9113 or package http1 says. The connection goes
// on.
func TestBadHeads(t *testing.T) {
	good := []string{":method", "GET", ":scheme", "https", ":path", "/body", ":authority", "localhost"}
	with := func(pairs ...string) []string { return append(append([]string(nil), good...), pairs...) }
	cut := func(name string) (pairs []string) {
		for i := 0; i < len(good); i += 2 {
			if good[i] != name {
				pairs = append(pairs, good[i], good[i+1])
			}
		}
		return pairs
	}
	set := func(name, value string) []string {
		pairs := append([]string(nil), good...)
		for i := 0; i < len(good); i += 2 {
			if good[i] == name {
				pairs[i+1] = value
			}
		}
		return pairs
	}
	many := func(n int) (pairs []string) {
		for i := range n {
			pairs = append(pairs, fmt.Sprintf("x-%d", i), "")
		}
		return with(pairs...)
	}
	const malformed = "PROTOCOL_ERROR"
	w := newWorldEcho(t)
	p := w.dial()
	id := uint32(1)
	for name, c := range map[string]struct {
		pairs []string
		want  string
	}{
		"good":                     {good, "200"},
		"no authority":             {cut(":authority"), "200"},
		"no method":                {cut(":method"), malformed},
		"no scheme":                {cut(":scheme"), malformed},
		"another scheme":           {set(":scheme", "ftp"), malformed},
		"no path":                  {cut(":path"), malformed},
		"empty path":               {set(":path", ""), malformed},
		"method of two words":      {set(":method", "GET /"), malformed},
		"method twice":             {with(":method", "GET"), malformed},
		"path twice":               {with(":path", "/"), malformed},
		"unknown pseudo-header":    {with(":protocol", "websocket"), malformed},
		"pseudo-header of answers": {with(":status", "200"), malformed},
		"late pseudo-header":       {append([]string{"a", "b"}, good...), malformed},
		"upper case":               {with("Accept", "a"), malformed},
		"no token":                 {with("a b", "c"), malformed},
		"empty name":               {with("", "c"), malformed},
		"line feed":                {with("a", "b\nc"), malformed},
		"zero byte":                {with("a", "b\x00"), malformed},
		"line feed in the path":    {set(":path", "/a\r\nb"), malformed},
		"Connection":               {with("connection", "close"), malformed},
		"Upgrade":                  {with("upgrade", "websocket"), malformed},
		"Keep-Alive":               {with("keep-alive", "1"), malformed},
		"Proxy-Connection":         {with("proxy-connection", "close"), malformed},
		"Transfer-Encoding":        {with("transfer-encoding", "chunked"), malformed},
		"TE":                       {with("te", "gzip"), malformed},
		"empty TE":                 {with("te", ""), "200"},
		"length without a body":    {with("content-length", "3"), malformed},
		"length of no body":        {with("content-length", "0"), "200"},
		"length is no number":      {with("content-length", "-1"), "400"},
		"length twice":             {with("content-length", "0", "content-length", "0"), "400"},
		"type twice":               {with("content-type", "a", "content-type", "b"), "400"},
		"same Host":                {with("host", "localhost"), "200"},
		"other Host":               {with("host", "elsewhere"), "400"},
		"odd Host":                 {append(cut(":authority"), "host", "a/b"), "400"},
		"Host alone":               {append(cut(":authority"), "host", "a"), "200"},
		"Host twice":               {append(cut(":authority"), "host", "a", "host", "b"), "400"},
		"odd authority":            {set(":authority", "user@localhost"), "400"},
		"relative path":            {set(":path", "body"), "400"},
		"absolute path":            {set(":path", "https://localhost/body"), "400"},
		"star":                     {set(":path", "*"), "400"},
		"half an escape":           {set(":path", "/%2"), "400"},
		"space in the path":        {set(":path", "/a b"), "400"},
		"CONNECT":                  {[]string{":method", "CONNECT", ":authority", "localhost:1"}, "405"},
		"expectation":              {with("expect", "miracles"), "200"},
		"many fields":              {many(exchange.MaxHeaderLines - 4), "200"},
		"too many fields":          {many(exchange.MaxHeaderLines - 3), "431"},
		"long":                     {with("a", strings.Repeat("b", exchange.MaxHeaderBytes-200)), "200"},
		"too long":                 {with("a", strings.Repeat("b", exchange.MaxHeaderBytes+200)), "431"},
		"long path":                {set(":path", "/"+strings.Repeat("p", 140_000)), "404"},
		"too long a path":          {set(":path", "/"+strings.Repeat("p", exchange.MaxHeaderBytes+200)), "431"},
	} {
		p.longBlock(id, p.fields(c.pairs...))
		if got := p.status(id); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		id += 2
	}
}

// longBlock sends a header block in frames of at most maxFrame bytes.
func (p *peer) longBlock(id uint32, block []byte) {
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	_ = p.framer.WriteHeaders(wire.HeadersFrameParam{
		StreamID: id, BlockFragment: first, EndStream: true, EndHeaders: len(block) == 0,
	})
	for len(block) > 0 {
		next := block[:min(len(block), maxFrame)]
		block = block[len(next):]
		_ = p.framer.WriteContinuation(id, len(block) == 0, next)
	}
}

// An HPACK bomb, few bytes that stand for very many fields, is bounded in bytes and in number.
func TestBomb(t *testing.T) {
	w := newWorldEcho(t)
	p := w.dial()
	block := append([]byte(nil), p.fields(":method", "GET", ":scheme", "https", ":path", "/body", ":authority", "localhost",
		"x", strings.Repeat("b", 4000))...)
	for range 30_000 {
		block = append(block, 0x80|62) // the newest entry of the dynamic table
	}
	p.longBlock(1, block)
	if got := p.status(1); got != "431" {
		t.Errorf("got %s, want 431", got)
	}
	p.get(3, "/body")
	if got := p.status(3); got != "200" {
		t.Errorf("the next request: got %s", got)
	}
}

// A connection keeps nothing of a request that it has read.
func TestHeadForgotten(t *testing.T) {
	w, streams := watchAll(t)
	p := w.dial()
	p.head(1, "GET", "/watch", true, "x", strings.Repeat("b", 1000))
	s := <-streams
	c := (<-s.sinks).(*watch).conn
	p.ping() // the head has been read
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.heads.fields[:cap(c.heads.fields)] {
		if f.Value != "" {
			t.Errorf("kept: %.50q", f)
		}
	}
	if c.heads.pseudo != [pseudoFields]string{} {
		t.Errorf("kept: %q", c.heads.pseudo)
	}
}

// A long head for which its address has no room is refused, and the connection's other streams go on.
// Once it is over, nothing counts.
func TestLongHeadsBounded(t *testing.T) {
	held := int64(0)
	d := new(headDecoder)
	d.init(func(bytes int) bool { held = int64(bytes); return bytes < 100_000 })
	p := newPeer(t)
	if _, err := d.hpack.Write(p.fields(":method", "GET", "a", strings.Repeat("b", 90_000), "c", strings.Repeat("d", 90_000))); err != nil {
		t.Fatal(err)
	}
	if !d.over || len(d.fields) != 1 || held < 180_000 {
		t.Errorf("over %t, %d fields, %d bytes", d.over, len(d.fields), held)
	}
	if _, wrong := d.readHead(&exchange.Exchange{}); wrong == nil || wrong.Code != 431 {
		t.Errorf("answered with %v", wrong)
	}
}

// FuzzHead decodes header blocks. Whatever is accepted is a head that HTTP/1.1 could have sent.
func FuzzHead(f *testing.F) {
	for _, pairs := range [][]string{
		{":method", "GET", ":scheme", "https", ":path", "/api", ":authority", "h", "accept", "a", "cookie", "b"},
		{":method", "POST", ":scheme", "https", ":path", "/a?b", "content-length", "3", "host", "h"},
	} {
		f.Add(newPeer(f).fields(pairs...))
	}
	f.Fuzz(func(t *testing.T, block []byte) {
		var d headDecoder
		d.init(func(int) bool { return true })
		if _, err := d.hpack.Write(block); err != nil || d.hpack.Close() != nil {
			return
		}
		if d.bytes > maxHeaderList && !d.over {
			t.Error("not over")
		}
		if d.checkPseudo() != "" {
			return
		}
		x := &exchange.Exchange{}
		if _, wrong := d.readHead(x); wrong != nil {
			return
		}
		if x.Target[0] != '/' || strings.ContainsAny(x.Method+x.Target, " \r\n\x00") {
			t.Errorf("request line %q %q", x.Method, x.Target)
		}
		total := 0
		for _, field := range x.Header {
			total += len(field.Name) + len(field.Value)
			if strings.ContainsAny(field.Name, " :\r\n\x00") || field.Name == "" || strings.ContainsAny(field.Value, "\r\n\x00") {
				t.Errorf("field %q", field)
			}
		}
		if total > exchange.MaxHeaderBytes || len(x.Header) > exchange.MaxHeaderLines {
			t.Errorf("%d fields of %d bytes", len(x.Header), total)
		}
	})
}
