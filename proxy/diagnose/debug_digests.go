package diagnose

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/watchfan/watchfan/proxy/selfcheck"
	"github.com/watchfan/watchfan/proxy/semaphore"
)

// DigestsPath is the path of [DigestsPage].
const DigestsPath = "/debug/digests"

// debugDigests is the answer of /debug/digests.
type debugDigests struct {
	Resource string                 `json:"resource"`
	Lanes    []selfcheck.LaneDigest `json:"lanes"` // by encoding
}

// DigestsPage answers /debug/digests?resource=v1/pods with JSON: the digests of the resource's
// caches. With &resourceVersion=N they are those at N, so that replicas can be compared. digests
// computes them. It takes time for each object, so it is called for one request at a time; others
// get 429.
func DigestsPage(digests func(resource string, rv uint64) []selfcheck.LaneDigest) http.HandlerFunc {
	turn := semaphore.New(1)
	return func(w http.ResponseWriter, r *http.Request) {
		if !onlyReads(w, r, "digests can only be read") {
			return
		}
		resource, rv, err := parseDigestsQuery(r)
		if err != nil {
			WriteText(w, http.StatusBadRequest, err.Error()+"\n")
			return
		}
		if !turn.TryAcquire() {
			w.Header().Set("Retry-After", "1")
			WriteText(w, http.StatusTooManyRequests, "another digest is being computed: try again\n")
			return
		}
		defer turn.Release()
		d := debugDigests{Resource: resource, Lanes: digests(resource, rv)}
		if len(d.Lanes) == 0 {
			WriteText(w, http.StatusNotFound, fmt.Sprintf("no cache of %.100q is filled: see /debug/lanes\n", resource))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		respond(w, true, d, func(io.Writer) {})
	}
}

// parseDigestsQuery returns the parameters of /debug/digests. rv is 0 if it is not given.
func parseDigestsQuery(r *http.Request) (resource string, rv uint64, err error) {
	query, err := parameters(r, []string{"resource", "resourceVersion"})
	if err != nil {
		return "", 0, err
	}
	for _, p := range query {
		if p.key == "resource" {
			resource = p.value
		} else if rv, err = strconv.ParseUint(p.value, 10, 64); err != nil || rv == 0 {
			return "", 0, fmt.Errorf("resourceVersion=%.50q: give a positive number", p.value)
		}
	}
	if resource == "" {
		return "", 0, errors.New("resource is missing: give v1/pods or apps/v1/deployments")
	}
	return resource, rv, nil
}
