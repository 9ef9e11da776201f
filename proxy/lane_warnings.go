package proxy

import "github.com/valyala/fasthttp"

// responseWarnings returns the Warning headers of the lane's responses.
func (l *lane) responseWarnings() []string {
	if w := l.warnings.Load(); w != nil {
		return *w
	}
	return nil
}

// writeWarnings adds them to the response of ctx.
func (l *lane) writeWarnings(ctx *fasthttp.RequestCtx) {
	for _, w := range l.responseWarnings() {
		ctx.Response.Header.Add("Warning", w)
	}
}
