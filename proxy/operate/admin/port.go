package admin

import (
	"context"
	"errors"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	maxHeaderBytes = 4 << 10 // net/http allows 4 KiB more
	maxBodyBytes   = 4 << 10

	// closingTime is how long requests may go on after Shutdown has begun.
	closingTime = time.Second
)

// Config says what a Port serves and to which clients. It does not change after New.
type Config struct {
	Loopback  bool // the port is bound to a loopback address
	Profiling bool // serve profiles, and show watches to all clients

	Metrics  *metrics.Set               // /metrics shows them beside those of the process
	Checks   []diagnose.Check           // of /readyz, in this order
	Watchers *diagnose.WatchersPage     // /debug/watchers
	State    func() diagnose.DebugState // /debug/lanes; may be called from any goroutine
	History  *diagnose.History          // /debug/history

	// Named are pages, by path, that show names to clients on this host only, or with Profiling.
	Named map[string]diagnose.NamedPage

	// Local reports whether a request comes from a program on this host, or from one of the port's
	// own pages, and not from another web page. It is about headers, not about the client's address.
	Local func(*http.Request) bool
	// Foreign counts requests that a port on loopback rejects because they are not Local.
	Foreign *metrics.Counter
}

// Port is the admin port. It is an http.Handler.
type Port struct {
	// Immutable after New.
	config Config
	guard  *exchange.Guard
	pages  map[string]http.HandlerFunc // by path
	server *http.Server

	connections connections
}

// New returns a port that config describes. It does not listen.
func New(config Config, guard *exchange.Guard) *Port {
	p := &Port{config: config, guard: guard}
	p.pages = p.newPages()
	p.server = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: downstream.HeaderTimeout,
		ReadTimeout:       downstream.HeaderTimeout,
		WriteTimeout:      downstream.StallTimeout, // net/http/pprof adds the duration of a profile
		IdleTimeout:       downstream.IdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         p.connections.note,
		ErrorLog:          stdlog.New(errorWriter{guard.Log}, "", 0),

		DisableGeneralOptionsHandler: true, // OPTIONS * is checked like every other request
	}
	return p
}

// Serve answers requests on ln until Shutdown. Then it returns nil. It closes ln.
func (p *Port) Serve(ln net.Listener) error {
	if err := p.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown closes the port. It waits for requests that are being answered, but not longer than
// closingTime. Then it closes their connections.
func (p *Port) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), closingTime)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
}

// errorWriter logs net/http's own lines, which are about single connections. None of them quotes a request.
type errorWriter struct{ log *slog.Logger }

func (w errorWriter) Write(line []byte) (int, error) {
	w.log.Debug("Connection failed", "err", strings.TrimSpace(string(line)))
	return len(line), nil
}
