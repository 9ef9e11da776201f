package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
)

// Check is a condition of /readyz, which says whether a new watch would be served now.
type Check struct {
	Name string
	OK   func() error // may be called from any goroutine, and must not block
}

// health answers as kube-apiserver's health endpoints do: "ok", or 500 and the list of checks. With
// ?verbose it always shows the list. Without checks it only says that the process runs.
func health(name string, checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, failed := run(checks)
		w.Header().Set("Cache-Control", "no-cache, private")
		switch {
		case failed:
			diagnose.WriteText(w, http.StatusInternalServerError, fmt.Sprintf("%s%s check failed\n", list, name))
		case r.URL.Query().Has("verbose"):
			diagnose.WriteText(w, http.StatusOK, fmt.Sprintf("%s%s check passed\n", list, name))
		default:
			diagnose.WriteText(w, http.StatusOK, "ok")
		}
	}
}

// run runs checks, and lists their outcomes line by line.
func run(checks []Check) (list string, failed bool) {
	var b strings.Builder
	b.WriteString("[+]ping ok\n")
	for _, check := range checks {
		if err := check.OK(); err != nil {
			fmt.Fprintf(&b, "[-]%s failed: %v\n", check.Name, err)
			failed = true
		} else {
			fmt.Fprintf(&b, "[+]%s ok\n", check.Name)
		}
	}
	return b.String(), failed
}
