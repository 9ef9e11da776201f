package diagnose

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
)

// How the pages under /debug answer.

func WriteText(ctx *fasthttp.RequestCtx, code int, text string) {
	ctx.SetContentType("text/plain; charset=utf-8")
	ctx.Response.Header.Set("X-Content-Type-Options", "nosniff")
	ctx.SetStatusCode(code)
	ctx.SetBodyString(text)
}

// acceptsJSON reports whether the client of the admin port asks for JSON. Programs do, browsers and
// curl do not.
func acceptsJSON(ctx *fasthttp.RequestCtx) bool {
	return strings.Contains(string(ctx.Request.Header.Peek(fasthttp.HeaderAccept)), "application/json")
}

// respond answers with v as JSON, or with what text writes.
func respond(ctx *fasthttp.RequestCtx, asJSON bool, v any, text func(io.Writer)) {
	if !asJSON {
		WriteText(ctx, http.StatusOK, "")
		text(ctx)
		return
	}
	ctx.SetContentType("application/json")
	ctx.Response.Header.Set("X-Content-Type-Options", "nosniff")
	if err := json.NewEncoder(ctx).Encode(v); err != nil {
		panic("encode: " + err.Error()) // it holds strings, finite numbers and times
	}
}
