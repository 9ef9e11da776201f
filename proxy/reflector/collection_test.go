package reflector

import (
	"net/http"
	"slices"
	"testing"
)

// What upstream warns the proxy of because of its credential is no concern of a lane's clients.
func TestWarnings(t *testing.T) {
	const own, resource = `299 - "own"`, `299 - "resource"`
	s := &roles{warn: func(w http.ResponseWriter, path string) {
		w.Header().Add("Warning", own)
		if path != "/version" {
			w.Header().Add("Warning", resource)
		}
	}}
	if got := s.collection(t).Warnings(); !slices.Equal(got, []string{resource}) {
		t.Errorf("got %q", got)
	}
}
