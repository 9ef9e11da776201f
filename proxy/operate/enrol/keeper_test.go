package enrol

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// patches is a kube-apiserver that is sent patches, and nothing else.
type patches struct {
	dynamic.NamespaceableResourceInterface
	n     int
	after func(*unstructured.Unstructured) // called before the answer
}

func (p *patches) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return p
}
func (p *patches) Namespace(string) dynamic.ResourceInterface { return p }

func (p *patches) Patch(
	_ context.Context, _ string, _ types.PatchType, content []byte, _ metav1.PatchOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	err := o.UnmarshalJSON(content)
	o.SetNamespace("ns")
	p.n++
	if p.after != nil {
		p.after(o)
	}
	return o, err
}

// A bundle that is written is not written again before its event comes. One that is deleted, before its writer has
// the answer, is there again soon.
func TestBundleDeletedAtOnce(t *testing.T) {
	dir := t.TempDir()
	a, err := proxytest.NewAuthority(filepath.Join(dir, "a"), &x509.Certificate{Subject: pkix.Name{CommonName: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.Sign(&x509.Certificate{DNSNames: []string{"tier"}})
	if err != nil {
		t.Fatal(err)
	}
	files := TLSFiles{filepath.Join(dir, "tls.crt"), a.File}
	if err := os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Leaf.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		up := &patches{}
		k := &keeper{cfg: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: a.File}}, client: up, tls: files,
			log: slog.New(slog.DiscardHandler), wrote: make(map[string]sent)}
		for _, store := range []*cache.Store{&k.namespaces, &k.bundles, &k.services} {
			*store = cache.NewStore(cache.MetaNamespaceKeyFunc)
		}
		_ = k.namespaces.Add(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "ns"}}})
		round := func(want int) {
			t.Helper()
			if k.round(t.Context()); up.n != want {
				t.Errorf("%d bundles were written, want %d", up.n, want)
			}
		}
		up.after = func(o *unstructured.Unstructured) { // its events come before the answer
			_ = k.bundles.Add(o)
			_ = k.bundles.Delete(o)
		}
		round(1)
		round(1)
		time.Sleep(roundInterval)
		up.after = func(o *unstructured.Unstructured) { _ = k.bundles.Add(o) }
		round(2)
		time.Sleep(roundInterval)
		round(2)
	})
}
