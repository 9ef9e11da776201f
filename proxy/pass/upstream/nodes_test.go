package upstream

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A node is named by its name alone while the proxy may not name the group of nodes, and with its
// groups before that is known. The question is asked in 10 s once, and after a refusal in a second.
// Without an answer the last one counts.
func TestNodesByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer string
		var questions, groups int
		refused := http.StatusOK
		server := roundTrip(func(r *http.Request) (*http.Response, error) {
			code := refused
			if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
				code = http.StatusOK
				if questions++; answer == "" {
					code = http.StatusInternalServerError
				}
			} else {
				groups = len(r.Header["Impersonate-Group"])
			}
			return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer))}, nil
		})
		u := &Upstream{base: &url.URL{Scheme: "https", Host: "h"}, own: server, naming: server,
			Tokens: auth.NewKnownTokens(), Via: newVia()}
		f := func(user string, wantGroups, wantQuestions int) {
			t.Helper()
			id := auth.Identity{Kind: auth.KindCertificate,
				User: &auth.UserInfo{Name: user, Groups: []string{"system:nodes", "system:authenticated"}}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL("/", "").String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := u.Pass(id, false, req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if groups != wantGroups || questions != wantQuestions {
				t.Errorf("%s: %d groups, %d questions, want %d and %d", user, groups, questions, wantGroups, wantQuestions)
			}
		}
		f("jane", 2, 0)
		f("system:node:n1", 2, 1)
		answer = `{"status":{"allowed":false}}`
		f("system:node:n1", 2, 1)
		time.Sleep(nodeNamingKept)
		f("system:node:n1", 0, 2)
		f("system:node:n2", 0, 2)
		f("jane", 2, 2)
		time.Sleep(nodeNamingKept)
		answer = ""
		f("system:node:n1", 0, 3)
		time.Sleep(nodeNamingKept)
		answer = `{"status":{"allowed":true}}`
		f("system:node:n1", 2, 4)
		answer, refused = `{"status":{"allowed":false}}`, http.StatusForbidden
		f("system:node:n1", 2, 4)
		f("system:node:n1", 2, 4)
		time.Sleep(nodeNamingDoubted)
		f("system:node:n1", 0, 5)
	})
}
