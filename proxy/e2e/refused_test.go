package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestRefusedInformer: an informer that is refused repeats its request at the time that it was
// told, and syncs then. It neither falls back to a list nor gives up.
func TestRefusedInformer(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	direct := c.direct(t)
	createNamespaces(t, direct, "refused")
	makeConfigMap(t, direct, "refused", "x", "")
	p := privateWatchfan(t, c, "--max-watches=2")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 2 {
		resp, err := p.plain(t).open(ctx, http.MethodGet, "/api/v1/namespaces/refused/configmaps?watch=1&resourceVersion=0", nil, "")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	s := startInformers(t, "informer", &rest.Config{Host: "http://" + p.ports.Insecure,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	for _, resource := range []string{"configmaps", "pods"} {
		steady.Until(t, "refusal of "+resource, func() error {
			if _, _, all := s.log.reads(resource); len(all) == 0 {
				return errors.New("nothing has been asked")
			}
			return nil
		})
	}
	end()
	steady.Until(t, "sync", func() error {
		if !s.configMaps.HasSynced() || !s.pods.HasSynced() {
			return errors.New("not synced")
		}
		return nil
	})
	if _, ok, _ := s.configMaps.GetStore().GetByKey("refused/x"); !ok {
		t.Error("the informer does not hold what was there before")
	}
	for _, resource := range []string{"configmaps", "pods"} {
		_, _, all := s.log.reads(resource)
		first, refused := strings.CutPrefix(all[0], "429 ")
		granted := slices.IndexFunc(all, func(request string) bool { return request != all[0] })
		if !refused || granted < 0 || all[granted] != "200 "+first {
			t.Errorf("%s: asked %q, want the same until it is granted", resource, all)
		}
	}
}
