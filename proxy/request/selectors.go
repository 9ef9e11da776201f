package request

import (
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors beyond these bounds are not evaluated here, nor parsed: the request is passed through.
// Kubelets ask for one field, kube-state-metrics for none, controllers for a few labels, and those
// that list names, as Argo CD's and Helm's do, for a few hundred values.
const (
	// MaxSelectorBytes is for both selectors. Common load balancers let no longer line pass.
	MaxSelectorBytes = 8 << 10
	// maxSelectorCommas bounds requirements and values alike: parsing takes about a microsecond for
	// each.
	maxSelectorCommas = 1000
	// maxRequirements is for both selectors: each is one look at each object.
	maxRequirements = 100
)

// parseSelectors returns a request's selectors. ok is false if kube-apiserver would refuse them, or
// if they are too large to be evaluated here.
func parseSelectors(rawLabels, rawFields string) (ls labels.Selector, fs fields.Selector, ok bool) {
	if len(rawLabels)+len(rawFields) > MaxSelectorBytes || strings.Count(rawLabels, ",")+strings.Count(rawFields, ",") > maxSelectorCommas {
		return nil, nil, false
	}
	ls, err := labels.Parse(rawLabels)
	if err != nil {
		return nil, nil, false
	}
	if fs, err = fields.ParseSelector(rawFields); err != nil {
		return nil, nil, false
	}
	requirements, _ := ls.Requirements()
	return ls, fs, len(requirements)+len(fs.Requirements()) <= maxRequirements
}
