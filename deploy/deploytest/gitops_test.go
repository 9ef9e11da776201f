package deploytest

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// application has the fields of Argo CD's Application that gitops/argocd.yaml uses
// (pkg/apis/application/v1alpha1/types.go).
type application struct {
	named
	Spec struct {
		Project string `json:"project"`
		Source  struct {
			RepoURL        string `json:"repoURL"`
			Path           string `json:"path"`
			TargetRevision string `json:"targetRevision"`
			Helm           struct {
				ReleaseName  string         `json:"releaseName"`
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"source"`
		Destination struct{ Server, Namespace string } `json:"destination"`
		SyncPolicy  struct {
			Automated   struct{ Prune, SelfHeal bool } `json:"automated"`
			SyncOptions []string                       `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

// ociRepository and helmRelease have those of Flux's that gitops/flux.yaml uses (api/v1/ocirepository_types.go
// of source-controller, api/v2/helmrelease_types.go of helm-controller).
type ociRepository struct {
	named
	Spec struct {
		Interval, URL string
		Ref           struct{ Tag string }
		LayerSelector struct{ MediaType, Operation string }
		Verify        struct {
			Provider          string
			MatchOIDCIdentity []struct{ Issuer, Subject string }
		}
	} `json:"spec"`
}

type helmRelease struct {
	named
	Spec struct {
		Interval         string
		ChartRef         struct{ Kind, Name string }
		Install, Upgrade struct{ Remediation struct{ Retries int } }
		Values           map[string]any
	} `json:"spec"`
}

type named struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// TestGitOps: the manifests have no field that Argo CD or Flux does not know, name the newest version, and
// the chart takes their values. Argo CD's renderings are the same each time.
func TestGitOps(t *testing.T) {
	newest := newestVersion(t)
	rendered := func(values map[string]any) string {
		t.Helper()
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		r, err := template(t, string(text))
		if err != nil {
			t.Fatal(err)
		}
		return r.Manifest
	}
	fields := func(file string, documents ...any) {
		t.Helper()
		for i, o := range parse(t, readFile(t, "../gitops/"+file)) {
			content, err := yaml.Marshal(o.Object)
			if err == nil {
				err = yaml.UnmarshalStrict(content, documents[i])
			}
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	var argo application
	fields("argocd.yaml", &argo)
	source := argo.Spec.Source
	if argo.APIVersion != "argoproj.io/v1alpha1" || source.TargetRevision != newest ||
		source.Helm.ReleaseName != releaseName || argo.Spec.Destination.Namespace != namespace {
		t.Errorf("argocd.yaml has %+v", argo)
	}
	if first := rendered(source.Helm.ValuesObject); first != rendered(source.Helm.ValuesObject) {
		t.Error("argocd.yaml: the chart's objects differ each time")
	}
	var chart ociRepository
	var flux helmRelease
	fields("flux.yaml", &chart, &flux)
	if chart.Spec.Ref.Tag != newest || flux.Spec.ChartRef.Kind != chart.Kind ||
		flux.Spec.ChartRef.Name != chart.Metadata.Name {
		t.Errorf("flux.yaml has %+v and %+v", chart, flux)
	}
	rendered(flux.Spec.Values)
}
