package http1

import (
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// HTTP/1.1's own fields stand where they sort, as in kube-apiserver's heads.
func TestAppendHead(t *testing.T) {
	sorted := exchange.Header{{Name: "Audit-Id", Value: "i"}, {Name: "Content-Type", Value: "c"}, {Name: "Vary", Value: "v"}, {Name: "Warning", Value: "w"}}
	watch := exchange.Header{sorted[0], sorted[1], sorted[3], sorted[2]}
	dated := exchange.Header{{Name: "Date", Value: "d"}, {Name: "X", Value: "x"}}
	for want, got := range map[string][]byte{
		"200 OK|Audit-Id|Content-Type|Date|Transfer-Encoding|Vary|Warning": appendHead(nil, &exchange.Response{Header: sorted},
			framed{chunked: true, length: -1, keepAlive: true, http11: true}),
		"200 OK|Audit-Id|Connection|Content-Type|Date|Warning|Transfer-Encoding|Vary": appendHead(nil, &exchange.Response{Header: watch},
			framed{chunked: true, length: -1, http11: true, warningsFirst: true}),
		"404 Not Found|Connection|Content-Length|Date|X": appendHead(nil, &exchange.Response{Status: 404, Header: dated},
			framed{length: 3, keepAlive: true}),
		"304 Not Modified|Date|X": appendHead(nil, &exchange.Response{Status: 304, Header: dated},
			framed{length: 0, keepAlive: true, http11: true}),
		"204 No Content|Date": appendHead(nil, &exchange.Response{Status: 204}, framed{length: 0, keepAlive: true, http11: true}),
	} {
		var names []string
		for line := range strings.SplitSeq(strings.TrimSuffix(string(got), "\r\n\r\n"), "\r\n") {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, "HTTP/1.1 "), ":")
			names = append(names, name)
		}
		if strings.Join(names, "|") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
