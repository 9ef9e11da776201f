package admin

import (
	"fmt"
	"net/http"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
)

// health answers as kube-apiserver's health endpoints do: "ok", or 500 and the list of checks. With
// ?verbose it always shows the list. Without checks it only says that the process runs.
func health(name string, checks []diagnose.Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, failed := "[+]ping ok\n", false
		for _, check := range diagnose.RunChecks(checks) {
			list += check.String()
			failed = failed || check.Error != ""
		}
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
