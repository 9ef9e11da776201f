package diagnose

import (
	"embed"
	"net/http"
)

// statusFiles is the status page: a document, its style, its icon, and its script, which asks
// /debug/lanes. There is no build step.
//
//go:embed status_page
var statusFiles embed.FS

// StatusPages returns the status page and its files, by path. The page's references are relative.
// They lead to the same files from / and from /statusz, and below any prefix, for example behind
// kube-apiserver's proxy of a service.
func StatusPages() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/":                  statusFile("index.html", "text/html; charset=utf-8"),
		"/statusz":           statusFile("index.html", "text/html; charset=utf-8"),
		"/statusz/style.css": statusFile("style.css", "text/css; charset=utf-8"),
		"/statusz/script.js": statusFile("script.js", "text/javascript; charset=utf-8"),
		"/statusz/icon.svg":  statusFile("icon.svg", "image/svg+xml"),
	}
}

// statusPolicy lets the page use its own files and nothing else. No other page may embed it.
const statusPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

func statusFile(name, mediaType string) http.HandlerFunc {
	content, err := statusFiles.ReadFile("status_page/" + name)
	if err != nil {
		panic(err) // the file is not in the program
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !onlyReads(w, r, "the status page can only be read") {
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", statusPolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		Write(w, http.StatusOK, mediaType, content)
	}
}
