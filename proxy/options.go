package proxy

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// MaxFlushInterval is the most that events may be made to wait: less than what a verdict takes for slow.
const MaxFlushInterval = 100 * time.Millisecond

// MaxAnswerTTL is the longest that an answer of kube-apiserver, about rights or owners, may be believed.
const MaxAnswerTTL = time.Hour

// AnyPort as a port number lets the system choose a free one.
const AnyPort = -1

// Options says where kube-apiserver is, where we listen, and what clients may cost us. NewOptions gives the defaults; the zero value is not usable.
//
// Each exported field has a flag, and a field of the configuration file, of the same name: ClientCAFile is --client-ca-file and clientCAFile.
type Options struct {
	// Kubeconfig is the file that names the cluster. Empty: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
	Kubeconfig string
	// Context is the kubeconfig's context to use. Empty: its current one.
	Context string

	// InsecurePort serves plain HTTP on 127.0.0.1 to whoever reaches it, with our own identity. Default 8001; 0 is off; AnyPort chooses.
	InsecurePort int
	// SecurePort serves HTTPS on BindAddress, to each client with its own rights. Default 8443; 0 is off; AnyPort chooses.
	SecurePort int
	// BindAddress is the IP address of the secure port. Default 0.0.0.0.
	BindAddress string
	// AdminPort serves the status page, health, metrics and profiles on AdminBindAddress. Default 8002; 0 is off; AnyPort chooses.
	AdminPort int
	// AdminBindAddress is the IP address of the admin port. Default 127.0.0.1.
	AdminBindAddress string
	// Profiling adds /debug/pprof to the admin port, for clients on this host, and shows /debug/watchers to other hosts too. Default true.
	Profiling bool
	// PortsFile is written, as JSON, once all ports are open. Empty: none.
	PortsFile string

	// TLSCertFile and TLSPrivateKeyFile are the secure port's certificate, read again when they change. Both or neither.
	TLSCertFile, TLSPrivateKeyFile string
	// CertDir keeps the self-signed certificate that is made when no TLSCertFile is given. Default: a directory of the user's cache.
	CertDir string

	// ClientCAFile signs client certificates, whose subjects are users; read again when it changes. Empty: there are none.
	ClientCAFile string
	// AnonymousAuth passes requests to the secure port that bring no credential to kube-apiserver, without one. Default true.
	AnonymousAuth bool
	// RequestHeaderClientCAFile signs the certificates of front proxies, which say in headers who their clients are; read again when it
	// changes. Empty: there are none.
	RequestHeaderClientCAFile string
	// RequestHeaderAllowedNames are the common names that front proxies may have. Empty: any.
	RequestHeaderAllowedNames []string
	// The headers by which front proxies name a user, its uid and its groups, and the prefixes of those that hold extra.
	// They are nobody else's and never forwarded. Default none, as kube-apiserver's.
	RequestHeaderUsernameHeaders, RequestHeaderUIDHeaders, RequestHeaderGroupHeaders, RequestHeaderExtraHeadersPrefix []string

	// AuthenticationTokenWebhookCacheTTL is how long kube-apiserver is believed whose a token is, where that is asked at all; see owners.
	// Default 10s; 0 asks for each request. At most MaxAnswerTTL, as the next two.
	AuthenticationTokenWebhookCacheTTL time.Duration
	// AuthorizationWebhookCacheAuthorizedTTL is how long kube-apiserver is believed that a client may read: for so long it goes on after
	// its right is taken away. Default 10s; 0 asks for each request.
	AuthorizationWebhookCacheAuthorizedTTL time.Duration
	// AuthorizationWebhookCacheUnauthorizedTTL is how long it is believed that a client may not, and its reads are passed through. Default 10s;
	// 0 asks for each request.
	AuthorizationWebhookCacheUnauthorizedTTL time.Duration
	// AuthorizationRecheckInterval is how often kube-apiserver is asked whether the client of an open watch may still read. A watch ends
	// when it may not, or when kube-apiserver has not said so for six intervals. Default 1m. From 1s to 1h.
	AuthorizationRecheckInterval time.Duration

	// ResidentResources are watched from the start and for good; named as pods, v1/pods or apps/v1/deployments. Default none.
	ResidentResources []string
	// Exclude are the resources that are never served from a cache, in whatever version: always passed through. Named as ResidentResources
	// are, or *.GROUP for all of a group; a name without a group is that of all groups. Default none.
	Exclude []string
	// CacheAggregatedGroups are the API groups, or GROUP/VERSION, that may be cached although an aggregated API server answers for
	// them, because it shows all users who may read a resource the same. Default none.
	CacheAggregatedGroups []string
	// IdleTimeout is how long a resource is still watched upstream after its last client. Default 10m.
	IdleTimeout time.Duration
	// FreshnessTimeout is how long a request waits for state as new as it asks for. Default 3s, as kube-apiserver's.
	FreshnessTimeout time.Duration
	// MaxConnections is how many connections clients may have on both ports at once; further ones are reset. It is lowered to nine tenths of the
	// files that the process may have open. Who does no more than hold one costs 9 KiB, or 38 over TLS, and with a head that is long and never
	// complete 69 or 134 KiB (2,000 of each to one bin/watchfan on x86-64, one run). Default 100000.
	MaxConnections int
	// MinRequestTimeout is the least duration of a watch without timeoutSeconds; each gets up to twice that. Default 30m.
	MinRequestTimeout time.Duration
	// CompressWatches serves watches as gzip to clients that accept it, compressed once for all of them. Default true.
	CompressWatches bool
	// FlushInterval is the least time between two writes of events to a watch: for at most so long an event waits for others to leave with,
	// if there was one just before it. Default 0, so that each leaves at once. At most MaxFlushInterval.
	FlushInterval time.Duration

	// MaxConnectionAge is how old a client's connection may get, give or take a tenth: then it carries no other request, and its watch ends, so that
	// clients spread over replicas that have been up for different times. Default 0: as old as it likes.
	MaxConnectionAge time.Duration

	// HistoryFrames and HistoryBytes bound the past events kept for each resource. Defaults 102400, 64Mi.
	HistoryFrames int
	HistoryBytes  int64
	// ClientBufferFrames and ClientBufferBytes are how far one watch may fall behind before it is ended. Defaults 4096, 32Mi.
	ClientBufferFrames int
	ClientBufferBytes  int64
	// MaxWatches is how many watches may be open at a time, passed-through ones included; more are refused with 429.
	// Default 0: any number, as at kube-apiserver. What watches may use is MemoryLimit's business.
	MaxWatches int
	// MaxWatchesPerUser is MaxWatches for one user. Default 20000, which is for what has lost its way, or means harm: a kubelet has one for each ConfigMap
	// and Secret of its pods, some hundreds; Argo CD one for each kind of resource and namespace, thousands; kube-proxy, one user on all nodes,
	// four on each of 5,000. An agent on thousands of nodes that watches more needs more than that, for its replica's share of them. 0 is any number.
	MaxWatchesPerUser int
	// MemoryLimit is how many bytes of memory may be used. Nearing it, lanes without clients stop and none begins, then new watches and
	// lists are refused with 429, then new connections are reset. Default -1, CgroupMemory; 0 is off.
	MemoryLimit int64

	// AuditLogPath is the file to which each read that is served from a cache is written, and each request that we refuse, as
	// kube-apiserver's audit log has them; see auditLog. "-" is standard output. Empty: none.
	AuditLogPath string
	// AuditLogMode is what happens when the audit log cannot be written, or not at once: AuditBatch, AuditBlocking or AuditBlockingStrict; see
	// auditLog. Default batch, where kube-apiserver's is blocking.
	AuditLogMode string
	// AuditLogMaxAge is the days that old files of the audit log are kept, AuditLogMaxBackup how many of them, AuditLogMaxSize the
	// megabytes at which a file becomes an old one; 0 is no limit. Defaults are kube-apiserver's: 366, 100 and 100.
	AuditLogMaxAge, AuditLogMaxBackup, AuditLogMaxSize int

	// ShutdownDelayDuration is how long we go on serving after /readyz has begun to fail. Default 0s.
	ShutdownDelayDuration time.Duration
	// DrainDuration is for how long the watches' ends are then spread. Default 10s; 0 ends them at once.
	DrainDuration time.Duration
	// ShutdownTimeout is how long requests may take to end after that. Default 10s.
	ShutdownTimeout time.Duration

	// LogLevel is the least level that is logged, as --log-level names it or -v numbers it. Default info.
	LogLevel slog.Level
	// LogFormat is text or json. Default text.
	LogFormat string

	// places are the options that a configuration file has set, by flag, each with its place there: "config.yaml:12: historyBytes".
	places map[string]string
	// Version is what /debug/lanes and the status page say that this program is. It is no flag: main knows it.
	Version string

	// spareLists keeps large collections from being listed to prove freshness; see prover.
	spareLists bool
	// hangTimeout is for how long an upstream watch that has brought bookmarks may bring nothing; see guard.
	hangTimeout time.Duration
	// avoidFor is for how long a resource is passed through that has an object which can't be cached.
	avoidFor time.Duration
	// readMemory says how much memory is in use; nil is what the system says.
	readMemory func() (int64, error)
	// mostAlone is how many small consistent reads of one resource are passed through at a time; see aloneReads.
	mostAlone int
}

// CgroupMemory as a memory limit is that of the container, or of another control group, if there is one.
const CgroupMemory = -1

// leastMemory is what watchfan needs with a few lanes and clients.
const leastMemory = 64 << 20

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{
		InsecurePort:     8001,
		SecurePort:       8443,
		BindAddress:      "0.0.0.0",
		AdminPort:        8002,
		AdminBindAddress: "127.0.0.1",
		Profiling:        true,
		CertDir:          defaultCertDir(),
		AnonymousAuth:    true,

		AuthenticationTokenWebhookCacheTTL:       answerTTL,
		AuthorizationWebhookCacheAuthorizedTTL:   answerTTL,
		AuthorizationWebhookCacheUnauthorizedTTL: answerTTL,
		AuthorizationRecheckInterval:             recheckInterval,

		IdleTimeout:        10 * time.Minute,
		FreshnessTimeout:   3 * time.Second,
		MaxConnections:     100_000,
		MaxWatchesPerUser:  20_000,
		MinRequestTimeout:  30 * time.Minute,
		CompressWatches:    true,
		HistoryFrames:      102400, // kube-apiserver: defaultUpperBoundCapacity in storage/cacher/watch_cache_history.go
		HistoryBytes:       64 << 20,
		ClientBufferFrames: 4096,
		ClientBufferBytes:  32 << 20,
		MemoryLimit:        CgroupMemory,
		mostAlone:          4,
		AuditLogMode:       AuditBatch,
		AuditLogMaxAge:     366,
		AuditLogMaxBackup:  100,
		AuditLogMaxSize:    100,
		hangTimeout:        hangTimeout,
		avoidFor:           avoidFor,
		DrainDuration:      10 * time.Second,
		ShutdownTimeout:    10 * time.Second,
		LogFormat:          "text",
	}
}

func defaultCertDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "watchfan")
}

// AddFlags adds a flag for each option to fs; the options' present values are the defaults.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	list := func(values *[]string, name, usage string) { fs.Var(&listValue{values: values}, name, usage) }

	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "`FILE` that names the cluster (default $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&o.Context, "context", o.Context, "`NAME` of the kubeconfig's context to use (default its current one)")

	fs.IntVar(&o.InsecurePort, "insecure-port", o.InsecurePort, "`PORT` on 127.0.0.1 for plain HTTP; whoever reaches it acts with the proxy's own rights, as with kubectl proxy; 0 is off, -1 any free port")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "`PORT` for HTTPS, to each client with its own rights; 0 is off, -1 any free port")
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "`IP` address of the secure port")
	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "`FILE` with the secure port's certificate, read again when it changes (default a self-signed one in --cert-dir)")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile, "`FILE` with the certificate's private key, read again when it changes")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "`DIRECTORY` that keeps the self-signed certificate")

	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "`FILE` with the authorities that sign client certificates, read again when it changes (default none: no client certificates)")
	fs.BoolVar(&o.AnonymousAuth, "anonymous-auth", o.AnonymousAuth, "pass requests to the secure port without any credential on to kube-apiserver, as system:anonymous's")
	fs.StringVar(&o.RequestHeaderClientCAFile, "requestheader-client-ca-file", o.RequestHeaderClientCAFile, "`FILE` with the authorities that sign front proxies' certificates, read again when it changes (default none: no front proxies)")
	list(&o.RequestHeaderAllowedNames, "requestheader-allowed-names", "common `NAMES` that front proxies' certificates may have (default any)")
	list(&o.RequestHeaderUsernameHeaders, "requestheader-username-headers", "`HEADERS` in which front proxies name a user, usually X-Remote-User")
	list(&o.RequestHeaderUIDHeaders, "requestheader-uid-headers", "`HEADERS` in which front proxies name a user's uid, usually X-Remote-Uid")
	list(&o.RequestHeaderGroupHeaders, "requestheader-group-headers", "`HEADERS` in which front proxies name a user's groups, usually X-Remote-Group")
	list(&o.RequestHeaderExtraHeadersPrefix, "requestheader-extra-headers-prefix", "`PREFIXES` of headers in which front proxies say more about a user, usually X-Remote-Extra-")

	fs.DurationVar(&o.AuthenticationTokenWebhookCacheTTL, "authentication-token-webhook-cache-ttl", o.AuthenticationTokenWebhookCacheTTL, "`DURATION` for which kube-apiserver is believed whose a token is; 0s asks each time")
	fs.DurationVar(&o.AuthorizationWebhookCacheAuthorizedTTL, "authorization-webhook-cache-authorized-ttl", o.AuthorizationWebhookCacheAuthorizedTTL, "`DURATION` for which kube-apiserver is believed that a client may read; 0s asks each time")
	fs.DurationVar(&o.AuthorizationWebhookCacheUnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", o.AuthorizationWebhookCacheUnauthorizedTTL, "`DURATION` for which it is believed that a client may not; 0s asks each time")
	fs.DurationVar(&o.AuthorizationRecheckInterval, "authorization-recheck-interval", o.AuthorizationRecheckInterval, "`DURATION` after which kube-apiserver is asked again whether the client of an open watch may read; its watches end after six without an answer")

	list(&o.ResidentResources, "resident-resources", "`RESOURCES` to watch from the start and for good, comma-separated: pods, v1/configmaps, apps/v1/deployments")
	list(&o.Exclude, "exclude", "`RESOURCES` never to cache, named likewise, or as *.cilium.io")
	list(&o.CacheAggregatedGroups, "cache-aggregated-groups", "`GROUPS` to cache, as example.com or example.com/v1, although an aggregated API server answers for them: it must show all users the same")
	fs.DurationVar(&o.IdleTimeout, "idle-timeout", o.IdleTimeout, "`DURATION` for which a resource is still watched upstream after its last client")
	fs.DurationVar(&o.FreshnessTimeout, "freshness-timeout", o.FreshnessTimeout, "`DURATION` for which a request waits for state as new as it asks for")
	fs.BoolVar(&o.CompressWatches, "compress-watches", o.CompressWatches, "serve watches as gzip to clients that accept it, compressed once for all of them")
	fs.DurationVar(&o.FlushInterval, "flush-interval", o.FlushInterval, "least `DURATION` between two writes of events to a watch, so that more leave in each; saves CPU under load, costs latency")
	fs.IntVar(&o.HistoryFrames, "history-frames", o.HistoryFrames, "past `EVENTS` kept for each resource, from which watches can resume")
	fs.Var((*sizeValue)(&o.HistoryBytes), "history-bytes", "most `BYTES` of past events kept for each resource, as 64Mi")

	fs.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections, "`CONNECTIONS` that clients may have at once; further ones are reset; at most nine tenths of the files that may be open")
	fs.DurationVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout, "least `DURATION` of a watch that names none; each gets up to twice that")
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", o.MaxConnectionAge, "`DURATION`, give or take a tenth, after which a connection ends with its request or watch, for clients to spread over replicas; 0 is never")
	fs.IntVar(&o.ClientBufferFrames, "client-buffer-frames", o.ClientBufferFrames, "`EVENTS` that one watch may fall behind before it is ended")
	fs.Var((*sizeValue)(&o.ClientBufferBytes), "client-buffer-bytes", "`BYTES` that one watch may fall behind before it is ended, as 32Mi")

	fs.IntVar(&o.MaxWatches, "max-watches", o.MaxWatches, "`WATCHES` that may be open at a time, passed-through ones included; 0 is any number")
	fs.IntVar(&o.MaxWatchesPerUser, "max-watches-per-user", o.MaxWatchesPerUser, "`WATCHES` that one user may have open at a time: more than a kubelet, or kube-proxy on 5,000 nodes, and less than a flood; 0 is any number")
	fs.Var((*sizeValue)(&o.MemoryLimit), "memory-limit", "`BYTES` of memory near which caches are given up and new watches and lists refused; 0 is off, -1 the container's limit, if it has one")

	fs.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "`PORT` for the status page, /livez, /readyz, /metrics and /debug over plain HTTP; 0 is off, -1 any free port")
	fs.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "`IP` address of the admin port")
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve /debug/pprof on the admin port, to clients on this host, and /debug/watchers to other hosts too")
	fs.StringVar(&o.PortsFile, "ports-file", o.PortsFile, "`FILE` to write the chosen addresses to, as JSON, once all ports are open (default none)")
	level := &levelValue{level: &o.LogLevel}
	fs.Var(level, "log-level", "least `LEVEL` to log: debug, info, warn or error")
	fs.Var((*verbosityValue)(level), "v", "the level as a `NUMBER`, as Kubernetes' components have it, instead of --log-level: 0 is info, 1 to 3 add client-go's own lines, 4 and more are debug")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "`FORMAT` of the log on standard error: text or json")

	fs.StringVar(&o.AuditLogPath, "audit-log-path", o.AuditLogPath, "`FILE` to write who has read what from the cache to, one audit.k8s.io/v1 Event a line; - is standard output (default none)")
	fs.StringVar(&o.AuditLogMode, "audit-log-mode", o.AuditLogMode, "`MODE` of writing the audit log: batch drops and counts what is not taken in time, blocking writes each event before its response, blocking-strict also fails what it could not write down")
	fs.IntVar(&o.AuditLogMaxAge, "audit-log-maxage", o.AuditLogMaxAge, "`DAYS` to keep old files of the audit log; 0 is for ever")
	fs.IntVar(&o.AuditLogMaxBackup, "audit-log-maxbackup", o.AuditLogMaxBackup, "`NUMBER` of old files of the audit log to keep; 0 is all")
	fs.IntVar(&o.AuditLogMaxSize, "audit-log-maxsize", o.AuditLogMaxSize, "`MEGABYTES` at which a file of the audit log becomes an old one; 0 is never")

	fs.DurationVar(&o.ShutdownDelayDuration, "shutdown-delay-duration", o.ShutdownDelayDuration, "`DURATION` to go on serving, with /readyz failing, after SIGTERM")
	fs.DurationVar(&o.DrainDuration, "drain-duration", o.DrainDuration, "`DURATION` in which the watches then end, one after another, for their clients to go on elsewhere; 0 ends them at once")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "`DURATION` that requests may then take to end")
}

// Validate reports everything that is wrong with o, each error with what to do about it, and where in a configuration file it is.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	ports := make(map[int]string)
	for _, p := range []struct {
		flag string
		port int
	}{{"insecure-port", o.InsecurePort}, {"secure-port", o.SecurePort}, {"admin-port", o.AdminPort}} {
		if p.port < AnyPort || p.port > 65535 {
			wrong("%s is no port: give 1 to 65535, 0 for off, or -1 for any free one", o.given(p.flag, p.port))
		}
		if other := ports[p.port]; other != "" && p.port > 0 {
			wrong("%s is that of %s too: give one of them another port, or 0 for off", o.given(p.flag, p.port), o.named(other))
		}
		ports[p.port] = p.flag
	}
	if o.InsecurePort == 0 && o.SecurePort == 0 {
		wrong("%s and %s are both off: give one of them a port to serve on", o.named("insecure-port"), o.named("secure-port"))
	}
	for _, a := range []struct{ flag, address string }{{"bind-address", o.BindAddress}, {"admin-bind-address", o.AdminBindAddress}} {
		if net.ParseIP(a.address) == nil {
			wrong("%s is no IP address: give one, for example 0.0.0.0 or 127.0.0.1", o.given(a.flag, strconv.Quote(a.address)))
		}
	}
	if (o.TLSCertFile == "") != (o.TLSPrivateKeyFile == "") {
		wrong("%s and %s go together: give both, or neither for a self-signed certificate", o.named("tls-cert-file"), o.named("tls-private-key-file"))
	}
	if o.SecurePort != 0 && o.TLSCertFile == "" && o.CertDir == "" {
		wrong("%s is empty: name a writable directory for the self-signed certificate, give --tls-cert-file, or turn the secure port off with --secure-port=0", o.named("cert-dir"))
	}
	if o.RequestHeaderClientCAFile != "" && len(o.RequestHeaderUsernameHeaders) == 0 {
		wrong("%s is of no use without --requestheader-username-headers: give both, usually with X-Remote-User", o.named("requestheader-client-ca-file"))
	}
	for _, name := range o.ResidentResources {
		if !resourceName.MatchString(name) {
			wrong("%s is no resource: give plural names such as pods, deployments.apps or apps/v1/deployments", o.given("resident-resources", strconv.Quote(name)))
		}
		if o.SecurePort == 0 && isSecrets(residentName(name)) {
			wrong("%s is of no use without --secure-port: Secrets are served from a cache only to clients whose right to read them is asked for, "+
				"and whoever comes to the insecure port has the proxy's own", o.given("resident-resources", strconv.Quote(name)))
		}
	}
	for _, name := range o.Exclude {
		if !excludedName.MatchString(name) {
			wrong("%s is no resource: give plural names such as pods, deployments.apps, apps/v1/deployments or *.cilium.io", o.given("exclude", strconv.Quote(name)))
			continue
		}
		for _, resident := range o.ResidentResources {
			if excludes(name, residentName(resident)) {
				wrong("%s leaves %s of %s out: a resource is either always cached or never", o.given("exclude", strconv.Quote(name)), resident, o.named("resident-resources"))
			}
		}
	}
	for _, name := range o.CacheAggregatedGroups {
		if !aggregatedName.MatchString(name) {
			wrong("%s is no API group: give names such as example.com or example.com/v1", o.given("cache-aggregated-groups", strconv.Quote(name)))
		}
	}
	for _, d := range []struct {
		flag      string
		value     time.Duration
		mayBeZero bool
	}{
		{"authentication-token-webhook-cache-ttl", o.AuthenticationTokenWebhookCacheTTL, true},
		{"authorization-webhook-cache-authorized-ttl", o.AuthorizationWebhookCacheAuthorizedTTL, true},
		{"authorization-webhook-cache-unauthorized-ttl", o.AuthorizationWebhookCacheUnauthorizedTTL, true},
		{"authorization-recheck-interval", o.AuthorizationRecheckInterval, false},
		{"idle-timeout", o.IdleTimeout, true},
		{"freshness-timeout", o.FreshnessTimeout, false},
		{"min-request-timeout", o.MinRequestTimeout, false},
		{"flush-interval", o.FlushInterval, true},
		{"max-connection-age", o.MaxConnectionAge, true},
		{"drain-duration", o.DrainDuration, true},
		{"shutdown-delay-duration", o.ShutdownDelayDuration, true},
		{"shutdown-timeout", o.ShutdownTimeout, true},
	} {
		if d.value < 0 || d.value == 0 && !d.mayBeZero {
			wrong("%s is too short: give a positive duration, for example 30s", o.given(d.flag, d.value))
		}
	}
	for _, d := range []struct {
		flag        string
		value, most time.Duration
	}{
		{"flush-interval", o.FlushInterval, MaxFlushInterval},
		{"authentication-token-webhook-cache-ttl", o.AuthenticationTokenWebhookCacheTTL, MaxAnswerTTL},
		{"authorization-webhook-cache-authorized-ttl", o.AuthorizationWebhookCacheAuthorizedTTL, MaxAnswerTTL},
		{"authorization-webhook-cache-unauthorized-ttl", o.AuthorizationWebhookCacheUnauthorizedTTL, MaxAnswerTTL},
		{"authorization-recheck-interval", o.AuthorizationRecheckInterval, MaxAnswerTTL},
	} {
		if d.value > d.most {
			wrong("%s is too long: give at most %s", o.given(d.flag, d.value), d.most)
		}
	}
	if i := o.AuthorizationRecheckInterval; i > 0 && i < time.Second {
		wrong("%s is too short: give at least 1s", o.given("authorization-recheck-interval", i))
	}
	for _, n := range []struct {
		flag         string
		value, least int64
	}{
		{"audit-log-maxage", int64(o.AuditLogMaxAge), 0},
		{"audit-log-maxbackup", int64(o.AuditLogMaxBackup), 0},
		{"audit-log-maxsize", int64(o.AuditLogMaxSize), 0},
		{"max-connections", int64(o.MaxConnections), 1},
		{"history-frames", int64(o.HistoryFrames), 1},
		{"client-buffer-frames", int64(o.ClientBufferFrames), 1},
		{"history-bytes", o.HistoryBytes, 1 << 20},
		{"client-buffer-bytes", o.ClientBufferBytes, 1 << 20},
		{"max-watches", int64(o.MaxWatches), 0},
		{"max-watches-per-user", int64(o.MaxWatchesPerUser), 0},
	} {
		if n.value < n.least {
			wrong("%s is too small: give at least %d", o.given(n.flag, n.value), n.least)
		}
	}
	if o.MemoryLimit != 0 && o.MemoryLimit != CgroupMemory && o.MemoryLimit < leastMemory {
		wrong("%s is too small: give at least 64Mi, 0 for off, or -1 for the container's limit", o.given("memory-limit", o.MemoryLimit))
	}
	if !slices.Contains(auditModes, o.AuditLogMode) {
		wrong("%s is unknown: give batch, blocking or blocking-strict", o.given("audit-log-mode", strconv.Quote(o.AuditLogMode)))
	}
	if o.LogFormat != "text" && o.LogFormat != "json" {
		wrong("%s is unknown: give text or json", o.given("log-format", o.LogFormat))
	}
	return errors.Join(errs...)
}

// named says where an option is set: "--history-bytes", or "config.yaml:12: historyBytes".
func (o *Options) named(flag string) string { return cmp.Or(o.places[flag], "--"+flag) }

// given says it with the value: "--history-bytes=5", or "config.yaml:12: historyBytes: 5".
func (o *Options) given(flag string, value any) string {
	if o.places[flag] != "" {
		return fmt.Sprintf("%s: %v", o.named(flag), value)
	}
	return fmt.Sprintf("%s=%v", o.named(flag), value)
}

// listenAddress returns the address for net.Listen, whatever AnyPort means there.
func listenAddress(ip string, port int) string {
	if port == AnyPort {
		port = 0
	}
	return net.JoinHostPort(cmp.Or(ip, "127.0.0.1"), fmt.Sprint(port))
}
