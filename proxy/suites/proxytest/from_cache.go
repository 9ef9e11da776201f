package proxytest

import "net/http"

// FromCache reports whether watchfan answered a request itself, from the header of the answer.
// kube-apiserver names a flow schema in each of its answers. The name is empty while a
// kube-apiserver that has just started has not read its flow schemas.
func FromCache(header http.Header) bool {
	_, named := header["X-Kubernetes-Pf-Flowschema-Uid"]
	return !named
}
