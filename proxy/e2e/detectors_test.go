package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestDetectorsNotice: informers of every release say so if a server shows them one state first, and
// another when they ask for exactly that version. This is what the other suites rely on.
func TestDetectorsNotice(t *testing.T) {
	parallel(t)
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"n","uid":"u",` +
		`"resourceVersion":"5"},"data":{"k":%q}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		query := r.URL.Query()
		value := "shown"
		switch {
		case query.Get("sendInitialEvents") == "true":
			fmt.Fprintf(w, `{"type":"ADDED","object":`+object+`}`+"\n", value)
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":`+
				`{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			fallthrough
		case query.Has("watch"):
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		case query.Get("resourceVersionMatch") == "Exact":
			value = "another"
		}
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+object+`]}`,
			value)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	programs := proxytest.InformerPrograms(t)
	for _, i := range informerCases() {
		if i.Client != "typed" || i.Representation != "json" || !i.Detected() {
			continue
		}
		t.Run(i.String(), func(t *testing.T) {
			t.Parallel()
			p, err := i.Start(t.Context(), programs[i.Release], "--server", server.URL, "--resources", "configmaps",
				"--until", lastObject)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Report(steady.Patience)
			if err == nil || !strings.Contains(err.Error(), "ifferent than received by the standard list") {
				t.Errorf("got %v, want the difference", err)
			}
		})
	}
}
