package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mostNames is how many names a path may have.
const mostNames = 12

// pathStep is a name behind a dot, a key in brackets, or [*] behind a list, which means nothing: paths
// lead into each element of a list anyway.
var pathStep = regexp.MustCompile(`^(?:\.([A-Za-z_$][A-Za-z0-9_$-]{0,62})(?:\[\*\])*|\['([^'\]]{1,320})'\])`)

// parsePath returns the names of a path such as spec.containers[*].image or data['tls.crt']; nil for
// what is none.
func parsePath(text string) (names []string) {
	for rest := "." + text; rest != ""; {
		found := pathStep.FindStringSubmatch(rest)
		if found == nil || len(names) == mostNames {
			return nil
		}
		names = append(names, found[1]+found[2])
		rest = rest[len(found[0]):]
	}
	return names
}

const noPath = "is no path: give at most %d names with dots between them, for example status.images, and other keys as in data['tls.crt']"

// identity are the fields by which objects are told apart and selected. owners are the others that
// always stay. ofMetadata are the other fields of metadata.
var (
	identity   = []string{"name", "namespace", "uid", "resourceVersion", "labels"}
	owners     = []string{"ownerReferences", "deletionTimestamp"}
	ofMetadata = []string{"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers",
		"generateName", "generation", "managedFields", "ownerReferences", "selfLink"}
)

// wrongPath says what is wrong with a path.
func wrongPath(text string) string {
	path := parsePath(text)
	switch {
	case path == nil:
		return fmt.Sprintf(noPath, mostNames)
	case path[0] != "metadata" || len(path) == 1:
		return ""
	case !slices.Contains(identity, path[1]) && !slices.Contains(ofMetadata, path[1]):
		return "is no field of metadata: give metadata with one of " + strings.Join(ofMetadata, ", ")
	case len(path) == 2, len(path) == 3 && (path[1] == "annotations" || path[1] == "labels"):
		return ""
	}
	return "is too deep: give a field of metadata, or an annotation as metadata.annotations['NAME']"
}
