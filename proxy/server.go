package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/base/files"
	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/gate/admission"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/operate/admin"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/pass/fallback"
	"github.com/watchfan/watchfan/proxy/pass/passthrough"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/cached"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/http1"
	"github.com/watchfan/watchfan/proxy/wire/http2"
)

// Server serves the Kubernetes API of one cluster. It answers requests from its own state if it
// can, and passes the others through to kube-apiserver.
type Server struct {
	// Immutable after New.
	opts        Options
	started     time.Time
	log         *slog.Logger
	set         *metrics.Set // its metrics
	metrics     *serverMetrics
	upstream    *upstream.Upstream
	discovery   *upstream.Discovery
	clients     *auth.Authenticator
	authorizer  *auth.Authorizer
	audit       *audit.Log
	passthrough *passthrough.Forwarder
	fallback    *fallback.Fallback // nil if this watchfan is none
	cached      *cached.Reads
	admission   *admission.Admission
	consumers   *consumers.Register
	views       *view.Views
	observer    *observe.Observer
	memory      *admission.Memory
	ledger      *account.Ledger // what is held for clients
	check       *admin.UpstreamCheck
	history     *diagnose.History
	front       *http1.Server           // the insecure and the secure port
	http2       *http2.Server           // of the secure port
	conns       *downstream.Connections // the front's
	poller      *downstream.Poller      // of the watches' connections
	admin       *admin.Port

	stopping atomic.Bool // set first when Run's context ends

	// ctx is cancelled when everything must end: after the last client, or after ShutdownTimeout.
	// Lanes run in it.
	ctx        context.Context
	cancel     context.CancelFunc
	endStreams context.CancelFunc // ends the passed-through watches, logs and upgrades

	// Set by Listen; nil where a port is off.
	insecureLn, secureLn, adminLn net.Listener
	certificate                   *files.Watcher[*tls.Certificate] // of the secure port
}

// givers gives memory back; see admission.Reliever.
type givers struct {
	*account.Ledger
	*cached.Reads
}

// New returns a server with opts. It reads the kubeconfig and the clients' certificate authorities, and
// at last opens the audit log. It neither listens nor connects yet, and starts no goroutine: a server
// that is not run may be dropped.
func New(opts Options, log *slog.Logger) (*Server, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	cfg, err := opts.Upstream.Config()
	if err != nil {
		return nil, err
	}
	return NewFor(cfg, opts, log)
}

// NewFor is New with valid opts for the cluster of cfg. It ignores opts.Upstream.
func NewFor(cfg *rest.Config, opts Options, log *slog.Logger) (*Server, error) {
	set := metrics.NewSet()
	guard := exchange.NewGuard(set, log)
	up, err := upstream.NewUpstream(cfg)
	if err != nil {
		return nil, err
	}
	clients, err := auth.NewAuthenticator(&opts.Auth, log)
	if err != nil {
		return nil, err
	}
	authorizer := auth.NewAuthorizer(up, up.Tokens, &opts.Auth, opts.Audit.AuditLogPath != "", auth.NewMetrics(set), guard)
	poller, err := downstream.NewPoller()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts:       opts,
		started:    time.Now(),
		log:        log,
		set:        set,
		metrics:    newServerMetrics(set),
		clients:    clients,
		upstream:   up,
		discovery:  upstream.NewDiscovery(up, guard),
		authorizer: authorizer,
		poller:     poller,
		views:      view.New(&opts.View, set),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var streams context.Context
	streams, s.endStreams = context.WithCancel(s.ctx)

	s.memory = admission.NewMemory(&s.opts.Admission, s.opts.readMemory, set, log)
	s.ledger = admission.NewLedger(s.memory.Limit(), log)
	s.conns = downstream.NewConnections(opts.Downstream.MaxConnectionAge, s.ledger)
	base := downstream.Base{
		Handle:    s.Handle,
		Refuse:    apistatus.Refuse,
		Ledger:    s.ledger,
		Conns:     s.conns,
		Poller:    poller,
		Guard:     guard,
		Malformed: apistatus.Rejections(set, "malformed"),
		Held:      apistatus.Rejections(set, "held_memory"),
	}
	s.front = http1.New(base)
	s.http2 = http2.New(base, &opts.HTTP2, set, apistatus.Rejections(set, "max_streams"))
	s.front.Also(http2.Protocol, s.http2.Serve)
	disk, err := seed.NewDisk(&opts.Seed, func() ([]byte, error) {
		_, key, err := opts.Downstream.Files()
		if err != nil {
			return nil, err
		}
		return os.ReadFile(key)
	})
	if err != nil {
		return nil, err
	}
	s.audit, err = audit.NewLog(&opts.Audit, authorizer.Owners, audit.NewMetrics(set), log)
	if err != nil {
		return nil, err
	}
	s.passthrough = passthrough.New(s.ctx, streams, passthrough.Config{
		Upstream:   up,
		Authorizer: authorizer,
		Front:      &clients.Front,
		Own:        func(gv schema.GroupVersion) bool { return s.cached.APIs.Own(gv) },
		Ledger:     s.ledger,
		Audit:      s.audit,
		Metrics:    passthrough.NewMetrics(set),
		Guard:      guard,
	})
	s.fallback = fallback.New(&s.opts.Fallback, up, s.conns, set, log)
	s.admission = admission.New(&s.opts.Admission, s.memory, s.authorizer, set, log)
	s.consumers = consumers.New(&s.opts.Consumers, opts.Profiling, authorizer, set, log)
	s.observer = observe.New(s.ctx, observe.Config{
		Options: &s.opts.Observe, Views: s.views, Short: s.memory.Short, OnDifference: s.stepBack, Metrics: set, Guard: guard})
	s.cached = cached.New(s.ctx, cached.Config{
		Options:    &s.opts.Cached,
		Lane:       &s.opts.Lane,
		SelfCheck:  &s.opts.SelfCheck,
		Memory:     lane.Memory{Short: s.memory.Short, Full: s.memory.Full, Ledger: s.ledger},
		Upstream:   up,
		Siblings:   seed.New(&s.opts.Seed, disk, opts.Downstream.TLSCertFile, cfg, up, up.Via.Mark, set, guard),
		Discovery:  s.discovery,
		Authorizer: authorizer,
		Ledger:     s.ledger,
		Audit:      s.audit,
		Observer:   s.observer,
		Consumers:  s.consumers,
		End:        s.end,
		TooMany:    s.admission.TooManyWaiting,
		Metrics:    cached.NewMetrics(set),
		Guard:      guard,
	})
	s.consumers.Read(s.cached.OpenWatches, s.cached.Lanes.Changes)
	s.check = admin.NewUpstreamCheck(up, log)
	s.history = diagnose.NewHistory(s.totals)
	s.admin = newAdmin(s, guard)
	return s, nil
}

// Listen opens the ports. Run calls Listen if the caller has not.
func (s *Server) Listen() error {
	if s.insecureLn != nil || s.secureLn != nil {
		return nil
	}
	err := s.listen()
	if err != nil {
		s.closeListeners(s.adminLn)
	}
	return err
}

// closeListeners closes the front's ports and the listeners of also.
func (s *Server) closeListeners(also ...net.Listener) {
	for _, ln := range append(also, s.insecureLn, s.secureLn) {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

func (s *Server) listen() error {
	listen := func(ip string, port int, flag string) (net.Listener, error) {
		ln, err := s.open(listenAddress(ip, port), flag == "--secure-port")
		if err != nil {
			return nil, explainListen(err, ip, port, flag)
		}
		return downstream.PatientListener{Listener: ln}, nil
	}
	limited := func(ln net.Listener) net.Listener {
		return downstream.LimitedListener{Listener: ln, Most: min(s.opts.Downstream.MaxConnections, machine.MostOpenFiles()/10*9),
			Open: s.conns.Count, From: s.conns.From, Spent: s.memory.Spent, Metrics: s.metrics.arrivals}
	}
	arrivals := downstream.NewArrivals(downstream.ShareOf(runtime.GOMAXPROCS(0), s.cached.Flusher.Quiet), s.metrics.arrivals)
	if s.opts.InsecurePort != 0 {
		ln, err := listen("127.0.0.1", s.opts.InsecurePort, "--insecure-port")
		if err != nil {
			return err
		}
		s.insecureLn = downstream.ClientListener{Listener: limited(ln), Arrivals: arrivals, TLS: false}
		s.log.Info("Serving plaintext with the proxy's own identity", "address", s.insecureLn.Addr().String(),
			"clients", reach(s.insecureLn))
	}
	var err error
	if s.opts.SecurePort != 0 {
		certFile, keyFile, err := s.opts.Downstream.Files()
		if err != nil {
			return err
		}
		if s.certificate, err = downstream.WatchCertificate(certFile, keyFile, s.log); err != nil {
			return fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w: give PEM files that watchfan may read, "+
				"or neither for a self-signed certificate", err)
		}
		ln, err := listen(s.opts.BindAddress, s.opts.SecurePort, "--secure-port")
		if err != nil {
			return err
		}
		s.secureLn = tls.NewListener(downstream.ClientListener{Listener: limited(ln), Arrivals: arrivals, TLS: true}, &tls.Config{
			MinVersion:       tls.VersionTLS12,
			NextProtos:       s.protocols(),
			GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Current(), nil },
			ClientAuth:       s.clients.ClientAuth(),
			VerifyConnection: s.clients.VerifyConnection,

			DynamicRecordSizingDisabled: true, // sends batches in as few records as possible
		})
		s.log.Info("Serving TLS with each client's own rights", "address", s.secureLn.Addr().String(),
			"clients", reach(s.secureLn), "certificate", certFile)
	}
	if len(s.opts.Cached.Exclude) > 0 {
		s.log.Info("Excluded resources are never cached", "resources", s.opts.Cached.Exclude)
	}
	if s.opts.AdminPort != 0 {
		if s.adminLn, err = listen(s.opts.AdminBindAddress, s.opts.AdminPort, "--admin-port"); err != nil {
			return err
		}
		s.log.Info("Serving health and metrics", "address", s.adminLn.Addr().String(), "clients", reach(s.adminLn))
	}
	return s.writePortsFile()
}

// open opens a port. That of clients may be shared with other programs, or be another's for the time
// being.
func (s *Server) open(address string, secure bool) (net.Listener, error) {
	switch {
	case secure && s.fallback.Local():
		return s.fallback.Listen(address)
	case secure && s.opts.Downstream.PermitPortSharing:
		return downstream.ListenShared(address)
	}
	return net.Listen("tcp", address)
}

// protocols returns the protocols of the secure port, in the order of preference.
func (s *Server) protocols() []string {
	if s.opts.HTTP2.DisableHTTP2 {
		return []string{http1.Protocol}
	}
	return []string{http2.Protocol, http1.Protocol}
}

// reach says which clients reach a listener.
func reach(ln net.Listener) string {
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return "this host only"
	}
	return "other hosts too"
}

// explainListen says why net.Listen has failed, and what to give instead. flag is that of the port.
func explainListen(err error, ip string, port int, flag string) error {
	address := map[string]string{"--secure-port": "--bind-address", "--admin-port": "--admin-bind-address"}[flag]
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s=%d: another program uses this port: give another one, 0 for off, or -1 for any free one (%w)",
			flag, port, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL) && address != "":
		return fmt.Errorf("%s=%s: this host does not have this address: give one of its own, 0.0.0.0 for all of them, "+
			"or 127.0.0.1 for programs on this host only (%w)", address, ip, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s=%d: watchfan may not open this port: give one above 1023 (%w)", flag, port, err)
	}
	return fmt.Errorf("%s=%d: %w", flag, port, err)
}

func (s *Server) writePortsFile() error {
	if s.opts.PortsFile == "" {
		return nil
	}
	content, err := json.Marshal(struct {
		Insecure string `json:"insecure,omitempty"`
		Secure   string `json:"secure,omitempty"`
		Admin    string `json:"admin,omitempty"`
		PID      int    `json:"pid"`
	}{s.InsecureAddr(), s.SecureAddr(), s.AdminAddr(), os.Getpid()})
	if err == nil {
		err = downstream.WriteFile(s.opts.PortsFile, append(content, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write --ports-file: %w", err)
	}
	return nil
}

// InsecureAddr returns the host and port of the insecure port. It returns "" before Listen, or if
// the port is off. SecureAddr and AdminAddr do the same for their ports.
func (s *Server) InsecureAddr() string { return addr(s.insecureLn) }
func (s *Server) SecureAddr() string   { return addr(s.secureLn) }
func (s *Server) AdminAddr() string    { return addr(s.adminLn) }

func addr(ln net.Listener) string {
	if ln == nil {
		return ""
	}
	return ln.Addr().String()
}

// Run serves until ctx ends. Then it stops; see package wire, Restarts. It returns nil after that, and
// leaves no goroutine behind, except those that the package's documentation names. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(); err != nil {
		s.cancel()
		return err
	}
	return s.RunDetached(ctx)
}

// stepBack passes a resource through whose cache would have answered an observed client otherwise than
// kube-apiserver. Other bytes of the same version are no reason: two kube-apiservers may write them.
func (s *Server) stepBack(gvr schema.GroupVersionResource, k observe.Kind) {
	if k != observe.Bytes {
		s.cached.Lanes.Mistrust(gvr, "an observed client's answer differs: "+string(k))
	}
}

// RunDetached is Run, but opens no port. Without Listen, requests come from callers of Handle only.
func (s *Server) RunDetached(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.cancel()
	s.addGauges()
	defer s.authorizer.Owners.End()
	if s.audit != nil {
		go s.audit.Run() // may hang on a file when all else has ended; Close waits for a bounded time
		defer s.audit.Close()
	}
	var background sync.WaitGroup
	background.Go(func() { s.check.Run(s.ctx) })
	if s.adminLn != nil {
		background.Go(func() { s.history.Run(s.ctx) })
	}
	if s.insecureLn != nil || s.secureLn != nil {
		background.Go(func() { s.poller.Run(s.ctx) })
	}
	if s.certificate != nil && s.opts.Downstream.TLSCertFile == "" {
		background.Go(func() { downstream.KeepSelfSigned(s.ctx, s.opts.Downstream.CertDir, s.log) })
	}
	if s.fallback != nil {
		port := s.opts.SecurePort
		if s.secureLn != nil {
			port = s.secureLn.Addr().(*net.TCPAddr).Port
		}
		background.Go(func() { s.fallback.Run(ctx, port) })
	}
	background.Go(s.cached.Run)
	background.Go(func() { s.consumers.Run(s.ctx) })
	if s.opts.configFile != "" {
		background.Go(s.followConfig)
	}
	background.Go(func() { s.memory.Run(s.ctx, givers{s.ledger, s.cached}) })

	failed := make(chan error, 3)
	serve := func(server interface{ Serve(net.Listener) error }, ln net.Listener) {
		if ln == nil {
			return
		}
		background.Go(func() {
			if err := server.Serve(ln); err != nil {
				failed <- fmt.Errorf("serve %s: %w", ln.Addr(), err)
			}
		})
	}
	serve(s.front, s.insecureLn)
	serve(s.front, s.secureLn)
	serve(s.admin, s.adminLn)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		stop() // also for a fall-back
	}
	s.shutdown(err != nil)
	background.Wait()
	s.passthrough.End()
	s.upstream.CloseIdleConnections()
	return err
}

// shutdown stops all. A server that has lost a port does not wait for load balancers to notice.
func (s *Server) shutdown(failed bool) {
	begin := time.Now()
	s.stopping.Store(true)
	s.log.Info("Stopping", "delay", s.opts.ShutdownDelayDuration, "drain", s.opts.DrainDuration, "timeout", s.opts.ShutdownTimeout)
	if !failed {
		time.Sleep(s.opts.ShutdownDelayDuration)
	}

	s.closeListeners() // the front does not know a listener before it serves it
	ended, end := context.WithCancel(context.Background())
	defer end()
	var servers sync.WaitGroup
	servers.Go(func() { s.front.Shutdown(ended) })
	s.conns.BeginClosing()
	s.cached.Drain(s.ctx, s.opts.DrainDuration)

	timeout, cancel := context.WithTimeout(context.Background(), s.opts.ShutdownTimeout)
	defer cancel()
	s.cached.AwaitEnds(s.opts.ShutdownTimeout / 2)
	s.conns.CloseSilent()
	s.cached.Lanes.EndWatches()
	s.endStreams()
	select {
	case <-s.conns.Empty:
	case <-timeout.Done():
	}
	s.cancel()
	cut := s.conns.CloseAll()
	end()
	servers.Wait()

	s.admin.Shutdown()
	s.log.Info("Stopped", "elapsed", time.Since(begin).Round(time.Millisecond), "connectionsCut", cut)
}

// Admin serves what the admin port serves.
func (s *Server) Admin() http.Handler { return s.admin }
