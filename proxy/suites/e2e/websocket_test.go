//testlint:allow timeout whole dialogues are compared

package e2e_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// socket opens a WebSocket. Unless lines say otherwise, it has the Origin of a page of the port
// itself, and the token in Authorization. first is sent right behind the request.
func (d *target) socket(uri string, first []byte, lines ...string) (*proxytest.WebSocket, error) {
	to, err := url.Parse(d.base)
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("tcp", to.Host, steady.Patience)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(steady.Patience))
	if to.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	given := strings.Join(lines, "\n")
	lines = append([]string{"Host: " + to.Host}, lines...)
	if !strings.Contains(given, "Origin:") {
		lines = append(lines, "Origin: "+d.base)
	}
	if d.token != "" && !strings.Contains(given, "base64url.bearer.") {
		lines = append(lines, "Authorization: Bearer "+d.token)
	}
	w, err := proxytest.OpenWebSocket(conn, uri, first, lines...)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	return w, nil
}

// converse opens a WebSocket with a header, reads it to its end, and returns the answer's status.
func (d *target) converse(uri string, header http.Header) (status int, err error) {
	var lines []string
	for name, values := range header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	if header.Get("Origin") == "" {
		lines = append(lines, "Origin:")
	}
	w, err := d.socket(uri, nil, lines...)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	if _, err := fmt.Sscanf(w.Head, "HTTP/1.1 %d ", &status); err != nil {
		return 0, fmt.Errorf("%q: %w", w.Head, err)
	}
	if status == http.StatusSwitchingProtocols {
		_, err = w.Rest()
	}
	return status, err
}

// dialogue returns all that a server sends over a WebSocket to a client. Of an ordinary response it
// returns the status line only.
func (d *target) dialogue(r webSocketCase) ([]byte, error) {
	w, err := d.socket(r.uri, []byte(r.first), r.lines...)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if status, header, _ := strings.Cut(w.Head, "\r\n"); strings.Contains(header, "Audit-Id") {
		return []byte(status), nil
	}
	if _, err := w.Write([]byte(r.sent)); err != nil {
		return nil, err
	}
	if c, ok := w.Conn.(interface{ CloseWrite() error }); r.leaves && ok {
		if err := c.CloseWrite(); err != nil {
			return nil, err
		}
	}
	rest, err := w.Rest()
	return append([]byte(w.Head), rest...), err
}

// webSocketCase is a dialogue that is held with kube-apiserver and with both ports of watchfan.
type webSocketCase struct {
	uri         string
	lines       []string
	first, sent string
	leaves      bool   // the client closes its sending side
	want        string // beginning of the head
	elsewhere   bool   // the insecure port refuses it, because the Origin is of no page of its own
	anywhere    string // a frame that comes before, between or behind the events: another goroutine of kube-apiserver sends it
}

// TestWebSocket: watchfan's answers to a handshake, and all frames behind them, are kube-apiserver's,
// byte for byte (contract.md 3.11; W43, W44).
func TestWebSocket(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	direct := c.direct(t)
	bearer := proxytest.BearerProtocol(direct.token)
	for name, r := range webSocketCases(bearer, proxytest.BearerProtocol("bad")) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ways := []*target{direct, p.secure(t, direct.token), p.plain(t)}
			dialogues, errs := make([][]byte, len(ways)), make([]error, len(ways))
			var wg sync.WaitGroup
			for i, way := range ways {
				wg.Go(func() { dialogues[i], errs[i] = way.dialogue(r) })
			}
			wg.Wait()
			if errs[0] != nil {
				t.Fatal(errs[0])
			}
			want := dialogues[0]
			if !strings.HasPrefix(string(want), "HTTP/1.1 "+r.want) {
				t.Errorf("kube-apiserver answers %.300q", want)
			}
			same := func(dialogue []byte) []byte {
				if !bytes.Contains(dialogue, []byte(r.anywhere)) {
					t.Errorf("%q does not come", r.anywhere)
				}
				return bytes.Replace(dialogue, []byte(r.anywhere), nil, 1)
			}
			want = same(want)
			for i, ours := range ways {
				if i == 0 {
					continue
				}
				if ours.token == "" && r.elsewhere {
					if !bytes.HasPrefix(dialogues[i], []byte("HTTP/1.1 403 ")) {
						t.Errorf("the insecure port answers %.300q", dialogues[i])
					}
					continue
				}
				if got := same(dialogues[i]); errs[i] != nil || !bytes.Equal(got, want) {
					t.Errorf("through %s: %v, got\n%.2000q\nwant\n%.2000q", ours.name, errs[i], got, want)
				}
			}
		})
	}
}

// webSocketCases returns the cases of TestWebSocket. bearer and bad are subprotocols with tokens.
func webSocketCases(bearer, bad string) map[string]webSocketCase {
	const (
		accepted = "101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
		watch    = "/api/v1/namespaces/a/configmaps?watch=1&timeoutSeconds=5"
		silent   = watch + "&resourceVersion=99999999"
	)
	frame := func(first byte, payload string) string { return string(proxytest.ClientFrame(first, payload)) }
	long := strings.Repeat("p", 300)
	return map[string]webSocketCase{
		"events":                {uri: watch, want: accepted},
		"events in protobuf":    {uri: watch, lines: []string{"Accept: " + protoType}, want: accepted},
		"metadata":              {uri: watch, lines: []string{"Accept: " + partial}, want: accepted},
		"metadata in protobuf":  {uri: watch, lines: []string{"Accept: application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}, want: accepted},
		"a table":               {uri: silent, lines: []string{"Accept: " + tableType}, want: accepted},
		"pretty":                {uri: watch + "&pretty=1", want: accepted},
		"gzip":                  {uri: watch, lines: []string{"Accept-Encoding: gzip", "Sec-WebSocket-Extensions: permessage-deflate"}, want: accepted},
		"selectors":             {uri: watch + "&labelSelector=n%3D1&fieldSelector=metadata.name%3Dx", want: accepted},
		"the old path":          {uri: "/api/v1/watch/namespaces/a/configmaps/x?timeoutSeconds=5", want: accepted},
		"a custom resource":     {uri: "/apis/ex.io/v1/namespaces/a/foos?watch=1&timeoutSeconds=5", want: accepted},
		"from a version":        {uri: watch + "&resourceVersion=1", want: accepted},
		"a version to come":     {uri: silent, want: accepted},
		"capitals":              {uri: silent, lines: []string{"Upgrade: WebSocket", "Connection: keep-alive, upgrade"}, want: accepted},
		"two Connection lines":  {uri: silent, lines: []string{"Connection: Upgrade", "Connection: close"}, want: accepted},
		"a later Connection":    {uri: silent, lines: []string{"Connection: keep-alive", "Connection: Upgrade"}, want: "400 Bad Request\r\n\r\nnot websocket protocol"},
		"Connection: close":     {uri: silent, lines: []string{"Connection: close, Upgrade"}, want: accepted},
		"any key":               {uri: silent, lines: []string{"Sec-WebSocket-Key: x"}, want: accepted},
		"a subprotocol":         {uri: silent, lines: []string{"Sec-WebSocket-Protocol: base64.binary.k8s.io"}, want: accepted},
		"an empty subprotocol":  {uri: silent, lines: []string{"Sec-WebSocket-Protocol: ,"}, want: "400 Bad Request\r\n\r\n"},
		"two subprotocols":      {uri: silent, lines: []string{"Sec-WebSocket-Protocol: a, b"}, want: "400 Bad Request\r\n\r\n"},
		"no key":                {uri: silent, lines: []string{"Sec-WebSocket-Key:"}, want: "400 Bad Request\r\n\r\nmismatch challenge/response"},
		"another version":       {uri: silent, lines: []string{"Sec-WebSocket-Version: 12"}, want: "400 Bad Request\r\nSec-WebSocket-Version: 13\r\n\r\n"},
		"no version":            {uri: silent, lines: []string{"Sec-WebSocket-Version:"}, want: "400 Bad Request\r\nSec-WebSocket-Version: 13\r\n\r\n"},
		"no Origin":             {uri: silent, lines: []string{"Origin:"}, want: "403 Forbidden\r\n\r\n"},
		"Origin null":           {uri: silent, lines: []string{"Origin: null"}, want: "403 Forbidden\r\n\r\n", elsewhere: true},
		"Origin foo":            {uri: silent, lines: []string{"Origin: foo"}, want: "403 Forbidden\r\n\r\n", elsewhere: true},
		"no Origin, a table":    {uri: silent, lines: []string{"Origin:", "Accept: " + tableType}, want: "403 Forbidden\r\n\r\n"},
		"another Origin":        {uri: silent, lines: []string{"Origin: https://pages.example"}, want: accepted, elsewhere: true},
		"two Origins":           {uri: silent, lines: []string{"Origin: https://pages.example", "Origin: null"}, want: accepted, elsewhere: true},
		"no Origin, no key":     {uri: silent, lines: []string{"Origin:", "Sec-WebSocket-Key:"}, want: "400 Bad Request\r\n\r\nmismatch"},
		"a token":               {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer + ", v1"}, want: accepted},
		"a token behind":        {uri: silent, lines: []string{"Sec-WebSocket-Protocol: v1, " + bearer}, want: accepted},
		"a token, two lines":    {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer, "Sec-WebSocket-Protocol: v1"}, want: accepted},
		"a token beside two":    {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer + ",v1,v2"}, want: "400 Bad Request\r\n\r\n"},
		"a token and nothing":   {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer + ","}, want: accepted},
		"a token alone":         {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer}, want: "401 Unauthorized"},
		"a token twice":         {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer + ", v1, " + bearer}, want: "401 Unauthorized"},
		"a token, padded":       {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bearer + "=, v1"}, want: "401 Unauthorized"},
		"a token beside none":   {uri: silent, lines: []string{"Authorization: Bearer  x", "Sec-WebSocket-Protocol: " + bearer + ", v1"}, want: accepted},
		"a token beside Bearer": {uri: silent, lines: []string{"Authorization: Bearer", "Sec-WebSocket-Protocol: " + bearer + ", v1"}, want: accepted},
		"a token beside Basic":  {uri: silent, lines: []string{"Authorization: Basic x", "Sec-WebSocket-Protocol: " + bearer + ", v1"}, want: accepted},
		"a bad token":           {uri: silent, lines: []string{"Sec-WebSocket-Protocol: " + bad + ", v1"}, want: "401 Unauthorized"},
		"a list":                {uri: "/api/v1/namespaces/a/configmaps?resourceVersion=0", want: "200 OK"},
		"a bad parameter":       {uri: watch + "&fieldSelector=x", want: "400 Bad Request"},
		"a bad version":         {uri: watch + "&resourceVersion=abc", want: "500 Internal Server Error"},
		"an unknown type":       {uri: watch, lines: []string{"Accept: application/yaml"}, want: "406 Not Acceptable"},
		"an unknown resource":   {uri: "/api/v1/nosuch?watch=1", want: "404 Not Found"},
		"ping":                  {uri: silent, first: frame(0x89, "early"), sent: frame(0x89, "") + frame(0x89, long), want: accepted},
		"ping before an event":  {uri: watch, first: frame(0x89, "early"), anywhere: "\x8a\x05early", want: accepted},
		"text and fragments":    {uri: silent, sent: frame(0x81, "text") + frame(0x01, "\xff") + frame(0x80, "y") + frame(0xc2, "x") + frame(0x83, "x") + frame(0x8a, "pong") + frame(0x89, "end"), want: accepted},
		"close":                 {uri: silent, sent: frame(0x89, "x") + frame(0x88, "\x03\xe8"), want: accepted},
		"close with 1001":       {uri: silent, sent: frame(0x88, "\x03\xe9bye"), want: accepted},
		"an empty close":        {uri: silent, sent: frame(0x88, ""), want: accepted},
		"half closed":           {uri: silent, leaves: true, want: accepted},
		"not masked":            {uri: silent, sent: "\x81\x00", want: accepted},
		"a close not masked":    {uri: silent, sent: "\x88\x00", want: accepted},
		"over 32 MiB":           {uri: silent, sent: "\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01abcd", want: accepted},
		"a ping of 32 MiB, cut": {uri: silent, sent: "\x89\xff\x00\x00\x00\x00\x02\x00\x00\x01abcd" + long, want: accepted},
	}
}
