package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// dialogue is everything that a server sends over WebSocket to a client that sends nothing.
type dialogue struct {
	status  int
	header  []string // names and values
	content []byte
}

// converse opens a WebSocket and reads until the server closes it.
func (d *target) converse(uri string, header http.Header) (dialogue, error) {
	to, err := url.Parse(d.base)
	if err != nil {
		return dialogue{}, err
	}
	conn, err := net.DialTimeout("tcp", to.Host, 5*time.Second)
	if err != nil {
		return dialogue{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if to.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	req, err := http.NewRequest(http.MethodGet, d.base+uri, nil)
	if err != nil {
		return dialogue{}, err
	}
	req.Header = header.Clone()
	for key, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-Websocket-Version": "13", "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		req.Header.Set(key, value)
	}
	if d.token != "" && !strings.Contains(header.Get("Sec-Websocket-Protocol"), "bearer") {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	if err := req.Write(conn); err != nil {
		return dialogue{}, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return dialogue{}, err
	}
	said := dialogue{status: resp.StatusCode}
	for key, values := range resp.Header {
		if key != "Date" && key != "Audit-Id" {
			said.header = append(said.header, fmt.Sprint(key, values))
		}
	}
	slices.Sort(said.header)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		said.content, err = readUntilClose(r)
	} else {
		said.content, err = io.ReadAll(resp.Body)
	}
	return said, err
}

// readUntilClose returns the frames up to and including the closing one (RFC 6455, section 5.2). A
// server's frames are not masked.
func readUntilClose(r *bufio.Reader) (frames []byte, err error) {
	for {
		head, err := r.Peek(2)
		if err != nil {
			return frames, err
		}
		n, rest := 2, int(head[1])
		switch rest {
		case 126:
			n = 4
		case 127:
			n = 10
		}
		head = slices.Clone(head)
		if n > 2 {
			long, err := r.Peek(n)
			if err != nil {
				return frames, err
			}
			rest = 0
			for _, b := range long[2:] {
				rest = rest<<8 | int(b)
			}
		}
		frame := make([]byte, n+rest)
		if _, err := io.ReadFull(r, frame); err != nil {
			return frames, err
		}
		frames = append(frames, frame...)
		if opcode := head[0] & 0xf; opcode == 8 {
			return frames, nil
		}
	}
}

// TestWebSocket: a watch over WebSocket is "one message per event", is refused without an Origin,
// and closes with status 1000 at its timeout (contract.md 3.11; W43, W44).
func TestWebSocket(t *testing.T) {
	direct, _ := fixtures(t)
	c := sharedCluster(t)
	p := sharedWatchfan(t)
	p.waitReady(t)
	token := c.token(t, "admin")
	bearer := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	const watch = "/api/v1/namespaces/a/configmaps?watch=1&timeoutSeconds=2"
	origin := func(more ...string) http.Header {
		h := http.Header{"Origin": {"http://localhost"}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	for name, r := range map[string]struct {
		uri    string
		header http.Header
		want   int
	}{
		"without an Origin":       {watch, http.Header{}, 403},
		"events":                  {watch, origin(), 101},
		"events in protobuf":      {watch, origin("Accept", protoType), 101},
		"from a resourceVersion":  {watch + "&resourceVersion=1", origin(), 101},
		"two subprotocols":        {watch, origin("Sec-Websocket-Protocol", "a, b"), 0},
		"a token and subprotocol": {watch, origin("Sec-Websocket-Protocol", bearer+", a"), 101},
		"a list":                  {"/api/v1/namespaces/a/configmaps?resourceVersion=0", origin(), 200},
		"a bad parameter":         {watch + "&fieldSelector=x", origin(), 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs := *direct
			theirs.token = token
			want, err := theirs.converse(r.uri, r.header)
			if err != nil {
				t.Fatal(err)
			}
			if r.want != 0 && want.status != r.want {
				t.Fatalf("kube-apiserver answers %d, want %d: %s", want.status, r.want, want.content)
			}
			for _, ours := range []*target{p.secure(t, token), p.plain(t)} {
				if ours.token == "" && r.want != 403 {
					continue // this port refuses the Origin of a page, see TestWebPages
				}
				got, err := ours.converse(r.uri, r.header)
				if err != nil {
					t.Fatalf("through %s: %v", ours.name, err)
				}
				ignore := func(h string) bool { return strings.HasPrefix(h, "X-Kubernetes-Pf") }
				got.header, want.header = slices.DeleteFunc(got.header, ignore), slices.DeleteFunc(want.header, ignore)
				if got.status != want.status || !slices.Equal(got.header, want.header) ||
					!bytes.Equal(got.content, want.content) {
					t.Errorf("through %s: got\n%d %q\n%q\nwant\n%d %q\n%q", ours.name, got.status, got.header,
						got.content, want.status, want.header, want.content)
				}
			}
		})
	}
}
