package http2

import "github.com/watchfan/watchfan/proxy/base/option"

// Options are the settings of HTTP/2.
type Options struct {
	DisableHTTP2 bool
	// HTTP2MaxStreamsPerConnection has as its default the limit that kube-apiserver announces, so a client
	// opens as many connections here as there. It is also what Go's clients assume before they have read
	// it. One shard writes to all streams of a connection, and they share one TCP window.
	HTTP2MaxStreamsPerConnection int
}

// AddTo adds the options to t.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Serving")
	t.Bool(&o.DisableHTTP2, "disable-http2", false, "serve HTTP/1.1 only on the secure port")

	t.Group("Connections")
	t.Int(&o.HTTP2MaxStreamsPerConnection, "http2-max-streams-per-connection", 100,
		"most `STREAMS` of an HTTP/2 connection at a time; each is a request or a watch", option.AtLeast(1))
}
