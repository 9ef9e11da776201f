package admin

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"path"
	"strings"

	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const profilesPath = "/debug/pprof"

// newPages returns the pages that every client of the port may see, by path.
func (p *Port) newPages() map[string]http.HandlerFunc {
	pages := map[string]http.HandlerFunc{
		"/livez":         health("livez", nil),
		"/healthz":       health("livez", nil),
		"/readyz":        health("readyz", p.config.Checks),
		"/metrics":       p.showMetrics,
		"/debug/lanes":   diagnose.LanesPage(p.config.State),
		"/debug/history": diagnose.HistoryPage(p.config.History),
	}
	maps.Copy(pages, diagnose.StatusPages())
	return pages
}

// ServeHTTP answers one request. A panic ends that request and its connection.
func (p *Port) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.guard.Caught("admin request", func() {
		closeAfter(w)
		diagnose.WriteText(w, http.StatusInternalServerError, exchange.ErrPanicked.Error()+"\n")
	})
	if r.ContentLength > maxBodyBytes {
		closeAfter(w)
		diagnose.WriteText(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request's body is longer than %d bytes\n", maxBodyBytes))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	p.answer(w, r)
}

func (p *Port) answer(w http.ResponseWriter, r *http.Request) {
	if p.config.Loopback && !p.config.Local(r) {
		p.config.Foreign.Inc()
		refuse(w, "this port answers programs on this host, kubectl port-forward and its own pages only; "+
			"it refuses requests and links of other web pages: type its address into the browser")
		return
	}
	path := cleaned(r.URL.Path)
	if page := p.pages[path]; page != nil {
		page(w, r)
		return
	}
	if id, ok := below(diagnose.WatchersPath, path); ok {
		p.showWatchers(w, r, id)
		return
	}
	if page := p.config.Named[path]; page != nil {
		page(w, r, p.config.Profiling || p.fromHere(r))
		return
	}
	if name, ok := below(profilesPath, path); ok && p.config.Profiling {
		p.showProfile(w, r, strings.TrimSuffix(name, "/"))
		return
	}
	diagnose.WriteText(w, http.StatusNotFound,
		"404 page not found: see /statusz, /livez, /readyz, /metrics, /debug/lanes, /debug/history, /debug/watchers, /debug/observed, /debug/consumers, /debug/accounts and /debug/pprof/\n")
}

func (p *Port) showMetrics(w http.ResponseWriter, _ *http.Request) {
	var text bytes.Buffer
	exposition.Write(&text, p.config.Metrics)
	diagnose.Write(w, http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", text.Bytes())
}

func (p *Port) showWatchers(w http.ResponseWriter, r *http.Request, id string) {
	if !p.config.Profiling && !p.fromHere(r) {
		refuse(w, "watches are shown to clients on this host only, for example through kubectl port-forward; "+
			"--profiling shows them to all")
		return
	}
	p.config.Watchers.Serve(w, r, id)
}

func (p *Port) showProfile(w http.ResponseWriter, r *http.Request, name string) {
	if !p.fromHere(r) {
		refuse(w, "profiles contain what is in memory; they are shown to clients on this host only, "+
			"for example through kubectl port-forward")
		return
	}
	if show := profiles[name]; show != nil {
		show(w, r)
	} else {
		pprof.Handler(name).ServeHTTP(w, r)
	}
}

// profiles are those that package pprof serves with a function of their own.
var profiles = map[string]http.HandlerFunc{
	"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
}

// fromHere reports whether the client is on this host, or comes through kubectl port-forward. These
// come from 127.0.0.1 or ::1. The sidecar of a service mesh brings the requests of other hosts from
// another loopback address, as Istio's from 127.0.0.6, or with the headers of a proxy.
func (p *Port) fromHere(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || forwarded(r.Header) {
		return false
	}
	address := client.Addr().Unmap()
	return (address == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || address == netip.IPv6Loopback()) && p.config.Local(r)
}

// forwarded reports whether a request has come through a proxy that says so.
func forwarded(h http.Header) bool {
	for name := range h {
		switch name {
		case "Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip":
			return true
		}
		if strings.HasPrefix(name, "X-Envoy-") || strings.HasPrefix(name, "L5d-") {
			return true
		}
	}
	return false
}

func refuse(w http.ResponseWriter, message string) {
	diagnose.WriteText(w, http.StatusForbidden, message+"\n")
}

func closeAfter(w http.ResponseWriter) { w.Header().Set("Connection", "close") }

// cleaned returns a path without empty, "." and ".." segments. A slash at its end stays.
func cleaned(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// below returns what follows dir in path. ok reports whether path is dir or below it.
func below(dir, path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path+"/", dir+"/")
	return strings.TrimSuffix(rest, "/"), ok
}
