package lane

import "github.com/valyala/fasthttp"

// ResponseWarnings returns the Warning headers of the lane's responses.
func (l *Lane) ResponseWarnings() []string { return l.collection.Warnings() }

// WriteWarnings adds them to the response of ctx.
func (l *Lane) WriteWarnings(ctx *fasthttp.RequestCtx) {
	for _, w := range l.ResponseWarnings() {
		ctx.Response.Header.Add("Warning", w)
	}
}
