package auth

import (
	"net/http"
	"net/url"
)

// Doer sends requests to kube-apiserver in the name of an identity.
type Doer interface {
	// DoAs sends req with the credentials of id, and no others.
	DoAs(id Identity, req *http.Request) (*http.Response, error)
	// URL returns kube-apiserver's address of a path.
	URL(path, rawQuery string) *url.URL
}
