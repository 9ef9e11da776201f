package proxy

import (
	"net/http"
	"net/url"
)

// doer sends requests to kube-apiserver in the name of an identity.
type doer interface {
	// DoAs sends req with the credentials of id, and no others.
	DoAs(id identity, req *http.Request) (*http.Response, error)
	// URL returns kube-apiserver's address of a path.
	URL(path, rawQuery string) *url.URL
}
