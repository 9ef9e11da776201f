package cachesuite

import (
	"errors"
	"strings"
)

// errNoREST is the error of what storage.Interface can say and Kubernetes' REST API can't.
var errNoREST = errors.New("REST can't express this")

// noNamespace is the namespace of an object whose key has none. Nothing is ever stored in it.
const noNamespace = "none"

// place is a key of storage.Interface as REST knows it: a collection, of all namespaces or of one,
// or an object if name is set.
type place struct{ namespace, name string }

// parseKey parses a key: /pods/, /pods/NAMESPACE or /pods/NAMESPACE/NAME, and without NAMESPACE if
// the resource is cluster-scoped. A recursive key is a prefix of others.
func (s *store) parseKey(key string, recursive bool) (place, error) {
	rest, ok := strings.CutPrefix(key+"/", "/pods/")
	if !ok {
		return place{}, errNoREST
	}
	parts := strings.FieldsFunc(rest, func(r rune) bool { return r == '/' })
	if s.scope != "Namespaced" {
		parts = append([]string{""}, parts...)
	}
	switch {
	case len(parts) == 0, len(parts) == 1 && s.scope != "Namespaced":
		return place{}, nil
	case len(parts) == 1 && recursive:
		return place{namespace: parts[0]}, nil
	case len(parts) == 1 && !strings.HasSuffix(key, "/"):
		return place{namespace: noNamespace, name: parts[0]}, nil
	case len(parts) == 2 && !recursive:
		return place{parts[0], parts[1]}, nil
	}
	return place{}, errNoREST // an object's key as a prefix, or a prefix as an object's key
}

// parseObjectKey parses the key of an object.
func (s *store) parseObjectKey(key string) (place, error) {
	p, err := s.parseKey(key, false)
	if err == nil && p.name == "" {
		err = errNoREST
	}
	return p, err
}
