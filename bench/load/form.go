package load

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// PodsPath lists all pods.
const PodsPath = "/api/v1/pods"

// A Form is one way to ask for a list of all pods.
type Form struct {
	Format   string // json or protobuf
	Encoding string // identity or gzip
	Version  string // resourceVersion: "0" accepts the state of a cache, "" asks for the latest
	Streamed bool   // as the initial events of a watch (KEP-3157), over a new connection each time; in JSON alone
}

// Forms are all forms that are measured.
var Forms = []Form{
	{"json", "identity", "0", false}, {"json", "gzip", "0", false},
	{"protobuf", "identity", "0", false}, {"protobuf", "gzip", "0", false},
	{"json", "identity", "", false}, {"json", "gzip", "", false},
	{"protobuf", "identity", "", false}, {"protobuf", "gzip", "", false},
}

// StreamedForms are these as the initial events of watches.
var StreamedForms = []Form{{"json", "identity", "0", true}, {"json", "identity", "", true}}

func (f Form) mediaType() string {
	if f.Format == "protobuf" {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

// Habit returns what clients do that make one list after the other over HTTP/1.1. query selects each client's
// pods: "" or "&fieldSelector=…".
func (f Form) Habit(clients int, query func(client int) string) Habit {
	return Habit{Clients: clients, HTTP1: true, Fresh: f.Streamed, Accept: f.mediaType(), Gzip: f.Encoding == "gzip",
		Target: func(client, _ int) string { return f.target(query(client)) }, Check: f.check}
}

func (f Form) target(query string) string {
	if f.Version != "" {
		query = "&resourceVersion=" + f.Version + query
	}
	if f.Streamed {
		return resyncURI + query
	}
	return PodsPath + strings.Replace(query, "&", "?", 1)
}

// check reports an answer that has another form, or that is its connection's last. The body of a watch will end
// with its initial events.
func (f Form) check(resp *http.Response) error {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	encoding := cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	if mediaType != f.mediaType() || encoding != f.Encoding {
		return fmt.Errorf("list answered with %s, %s: want %s, %s", mediaType, encoding, f.mediaType(), f.Encoding)
	}
	if f.Streamed {
		resp.Body = &initialList{Closer: resp.Body, lines: bufio.NewReader(resp.Body)}
	} else if resp.Close {
		return errors.New("list answered with a connection that it closes")
	}
	return nil
}

// endMark is in the bookmark that ends initial events, and in no other (KEP-3157).
var endMark = []byte(`"k8s.io/initial-events-end":"true"`)

// An initialList reads a watch in JSON up to the bookmark that ends its initial events.
type initialList struct {
	io.Closer
	lines *bufio.Reader
	line  []byte // the rest of the current one
}

func (e *initialList) Read(p []byte) (n int, err error) {
	if len(e.line) == 0 {
		if e.line, err = e.lines.ReadBytes('\n'); err != nil {
			return 0, fmt.Errorf("before the bookmark that ends the initial events: %w", err)
		}
		if bytes.Contains(e.line, endMark) {
			return 0, io.EOF
		}
	}
	n = copy(p, e.line)
	e.line = e.line[n:]
	return n, nil
}

// Decode decodes a list in the form.
func (f Form) Decode(body io.Reader) (*corev1.PodList, error) {
	if f.Encoding == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	}
	list := new(corev1.PodList)
	for events := json.NewDecoder(body); f.Streamed; {
		var event struct{ Object corev1.Pod }
		switch err := events.Decode(&event); err {
		case nil:
			list.Items = append(list.Items, event.Object)
		case io.EOF:
			return list, nil
		default:
			return nil, err
		}
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	_, _, err = scheme.Codecs.UniversalDeserializer().Decode(data, nil, list)
	return list, err
}
