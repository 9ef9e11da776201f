//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestClientGo: the program's reflectors begin when they are told to, the first one alone, and share
// connections.
func TestClientGo(t *testing.T) {
	var mu sync.Mutex
	watched := make(map[string]int) // by field selector
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		watched[r.URL.Query().Get("fieldSelector")]++
		mu.Unlock()
		if r.URL.Query().Get("sendInitialEvents") != "true" || r.ProtoMajor != 2 {
			t.Errorf("%s %s", r.Proto, r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	const watches = 40
	dir := t.TempDir()
	job, states := filepath.Join(dir, "job"), filepath.Join(dir, "state")
	text, err := json.Marshal(clientGoJob{Server: server.URL, Token: "t", Namespace: "bench", Objects: 4, Watches: watches})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(job, text, 0o600); err != nil {
		t.Fatal(err)
	}
	in, orders := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- runClientGo(context.Background(), []string{"--job", job, "--states", states}, in, t.Output())
	}()
	await := func(n int) (state clientGoState) {
		t.Helper()
		steady.Until(t, "state of the program", func() error {
			text, err := os.ReadFile(states)
			if err == nil {
				err = json.Unmarshal(text, &state)
			}
			if err == nil && state.Watching != n {
				err = fmt.Errorf("%+v, want %d that watch", state, n)
			}
			return err
		})
		return state
	}
	await(0)
	for _, n := range []int{1, watches} {
		if _, err := orders.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		if state := await(n); state.Open < 1 || state.Dials < state.Open || state.Open > 5 {
			t.Errorf("%+v", state)
		}
	}
	orders.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(watched) != 4 || watched["metadata.name="+objectName(2)] != watches/4 {
		t.Errorf("watched %v", strings.Join(sortedKeys(watched), ", "))
	}
}
