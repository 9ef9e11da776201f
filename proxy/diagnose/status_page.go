package diagnose

import (
	"embed"
	"net/http"

	"github.com/valyala/fasthttp"
)

// statusFiles is the status page: one document, its style and its script, which asks /debug/lanes.
// There is no build step.
//
//go:embed status_page
var statusFiles embed.FS

// AdminPages returns the pages that the admin port serves beside health, metrics and profiles, by
// path. lanes answers /debug/lanes. The status page's references are relative, and the same from /
// as from /statusz. So the page works beneath any prefix, as behind kube-apiserver's proxy of a
// service.
func AdminPages(lanes fasthttp.RequestHandler) map[string]fasthttp.RequestHandler {
	return map[string]fasthttp.RequestHandler{
		"/":                  statusFile("index.html", "text/html; charset=utf-8"),
		"/statusz":           statusFile("index.html", "text/html; charset=utf-8"),
		"/statusz/style.css": statusFile("style.css", "text/css; charset=utf-8"),
		"/statusz/script.js": statusFile("script.js", "text/javascript; charset=utf-8"),
		"/statusz/icon.svg":  statusFile("icon.svg", "image/svg+xml"),
		"/debug/lanes":       lanes,
	}
}

// statusPolicy lets the page use its own files and nothing else, and no other page show it.
const statusPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// statusFile serves one of the page's files.
func statusFile(name, mediaType string) fasthttp.RequestHandler {
	content, err := statusFiles.ReadFile("status_page/" + name)
	if err != nil {
		panic(err) // the file is not in the program
	}
	return func(ctx *fasthttp.RequestCtx) {
		if !ctx.IsGet() && !ctx.IsHead() {
			ctx.Error("the status page can only be read\n", http.StatusMethodNotAllowed)
			ctx.Response.Header.Set("Allow", "GET, HEAD")
			return
		}
		h := &ctx.Response.Header
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Security-Policy", statusPolicy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		ctx.SetContentType(mediaType)
		ctx.SetBody(content)
	}
}
