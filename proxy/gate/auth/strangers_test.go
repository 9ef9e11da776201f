package auth_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// While reviews of hundreds of garbage tokens are unanswered, a client that kube-apiserver has
// accepted before is reviewed, and so is a new client from another address. If more than a thousand
// requests come from one address, the last ones get 429 at once.
func TestReviewsOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := proxytest.NewBubbleServer(t)
		p := bubble.Start(t, up)
		p.CMs.Put("a", "x", "1")
		var mu sync.Mutex
		reviews := make(map[string]int) // of the honest clients, by token
		gate := make(chan struct{})
		defer close(gate)
		up.SetAllow(func(token, _ string) bool {
			if strings.HasPrefix(token, "garbage") {
				<-gate
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			reviews[token]++
			return true
		})
		// ask asks for the objects of a namespace, and wants an answer behind n reviews in all.
		ask := func(address, token, namespace string, n int) {
			t.Helper()
			c := p.Begin(bubble.Request{Target: "/api/v1/namespaces/" + namespace + "/configmaps?resourceVersion=0", From: address, Token: token})
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !c.Answered() || c.Response().StatusCode != http.StatusOK || reviews[token] != n {
				t.Errorf("%s from %s: answered %v, behind %d reviews", token, address, c.Answered(), reviews[token])
			}
		}
		ask("127.0.0.1", "regular", "a", 1)
		var strangers []*bubble.Client
		flood := func(n int) (refused int) {
			for range n {
				token := fmt.Sprint("garbage", len(strangers))
				strangers = append(strangers, p.Begin(bubble.Request{Target: bubble.CMs + "?resourceVersion=0", Token: token}))
			}
			synctest.Wait()
			for _, c := range strangers {
				if !c.Answered() {
					continue
				}
				refused++
				resp := c.Response()
				if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != http.StatusTooManyRequests ||
					err != nil || seconds < 5 || seconds > 15 {
					t.Errorf("a garbage token got %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
				}
			}
			return refused
		}
		if n := flood(400); n != 0 {
			t.Errorf("%d garbage tokens were answered before the honest clients", n)
		}
		// In one queue with the garbage tokens, each of these would wait for them.
		ask("127.0.0.1", "regular", "b", 2)
		ask("127.0.0.2", "newcomer", "b", 1)
		ask("127.0.0.1", "regular", "c", 3)
		if n := flood(1100); n < 400 || n > 500 {
			t.Errorf("%d of 1500 were refused", n)
		}
		ask("127.0.0.1", "regular", "d", 4)
	})
}
