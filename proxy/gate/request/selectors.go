package request

import (
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selectors beyond these bounds are neither parsed nor evaluated here: the request is passed
// through. Kubelets use one field, kube-state-metrics none, and controllers a few labels. Selectors
// that list names, as those of Argo CD and Helm do, have a few hundred values.
const (
	// MaxSelectorBytes bounds both selectors together. Common load balancers reject a longer
	// request line.
	MaxSelectorBytes = 8 << 10
	// maxSelectorCommas bounds requirements and values together: parsing takes about a microsecond
	// for each.
	maxSelectorCommas = 1000
	// MaxRequirements bounds both selectors together: each requirement is evaluated for each
	// object.
	MaxRequirements = 100
)

// commas counts the commas of both selectors, which requirements and values have between them.
func commas(rawLabels, rawFields string) int {
	return strings.Count(rawLabels, ",") + strings.Count(rawFields, ",")
}

// parseSelectors returns a request's selectors. ok is false if kube-apiserver would refuse them, or
// if they are too large to be evaluated here, or have replaced values.
func parseSelectors(rawLabels, rawFields string) (ls labels.Selector, fs fields.Selector, ok bool) {
	if len(rawLabels)+len(rawFields) > MaxSelectorBytes || commas(rawLabels, rawFields) > maxSelectorCommas {
		return nil, nil, false
	}
	ls, err := labels.Parse(rawLabels)
	if err != nil {
		return nil, nil, false
	}
	if fs, err = fields.ParseSelector(rawFields); err != nil || replaced(fs) {
		return nil, nil, false
	}
	requirements, _ := ls.Requirements()
	return ls, fs, len(requirements)+len(fs.Requirements()) <= MaxRequirements
}

// replaced reports whether a selector has a value that JSON may confuse with another: one with bytes
// that are not UTF-8, or with U+FFFD, which JSON has in their place. Objects in JSON would have the
// wrong value, and the access review would ask about another name. Labels have only ASCII.
func replaced(fs fields.Selector) bool {
	return slices.ContainsFunc(fs.Requirements(), func(r fields.Requirement) bool {
		return strings.ContainsRune(r.Value, utf8.RuneError)
	})
}
