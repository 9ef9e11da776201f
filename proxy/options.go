package proxy

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// AnyPort as a port number lets the system choose a free one.
const AnyPort = -1

// Options says where kube-apiserver is, where we listen, and what clients may cost us. NewOptions gives the defaults; the zero value is not usable.
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
	// AdminPort serves health, metrics and profiles on AdminBindAddress. Default 8002; 0 is off; AnyPort chooses.
	AdminPort int
	// AdminBindAddress is the IP address of the admin port. Default 127.0.0.1.
	AdminBindAddress string
	// Profiling adds /debug/pprof to the admin port, and shows /debug/watchers to other hosts too. Default true.
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
	RequestHeaderUsernameHeaders, RequestHeaderUIDHeaders, RequestHeaderGroupHeaders, RequestHeaderExtraPrefixes []string

	// Resident are resources that are watched from the start and for good, as pods, v1/pods or apps/v1/deployments. Default none.
	Resident []string
	// IdleTimeout is how long a resource is still watched upstream after its last client. Default 10m.
	IdleTimeout time.Duration
	// FreshnessTimeout is how long a request waits for state as new as it asks for. Default 3s, as kube-apiserver's.
	FreshnessTimeout time.Duration
	// MinRequestTimeout is the least duration of a watch without timeoutSeconds; each gets up to twice that. Default 30m.
	MinRequestTimeout time.Duration
	// CompressWatches serves watches as gzip to clients that accept it, compressed once for all of them. Default true.
	CompressWatches bool

	// HistoryFrames and HistoryBytes bound the past events kept for each resource. Defaults 102400 events, 64 MiB.
	HistoryFrames int
	HistoryBytes  int64
	// ClientBufferFrames and ClientBufferBytes are how far one watch may fall behind before it is ended. Defaults 4096 events, 32 MiB.
	ClientBufferFrames int
	ClientBufferBytes  int64

	// ShutdownDelayDuration is how long we go on serving after /readyz has begun to fail. Default 0.
	ShutdownDelayDuration time.Duration
	// ShutdownTimeout is how long requests may take to end after that. Default 10s.
	ShutdownTimeout time.Duration

	// spareLists keeps large collections from being listed to prove freshness; see prover.
	spareLists bool
	// mostAlone is how many small consistent reads of one lane are passed through at a time; see cachedRead.passesAlone.
	mostAlone int32
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{
		InsecurePort:       8001,
		SecurePort:         8443,
		BindAddress:        "0.0.0.0",
		AdminPort:          8002,
		AdminBindAddress:   "127.0.0.1",
		Profiling:          true,
		CertDir:            defaultCertDir(),
		AnonymousAuth:      true,
		IdleTimeout:        10 * time.Minute,
		FreshnessTimeout:   3 * time.Second,
		MinRequestTimeout:  30 * time.Minute,
		CompressWatches:    true,
		HistoryFrames:      102400, // kube-apiserver: defaultUpperBoundCapacity in storage/cacher/watch_cache_history.go
		HistoryBytes:       64 << 20,
		ClientBufferFrames: 4096,
		ClientBufferBytes:  32 << 20,
		mostAlone:          4,
		ShutdownTimeout:    10 * time.Second,
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
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "`FILE` that names the cluster (default $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&o.Context, "context", o.Context, "`NAME` of the kubeconfig's context to use (default its current one)")

	fs.IntVar(&o.InsecurePort, "insecure-port", o.InsecurePort, "`PORT` on 127.0.0.1 for plain HTTP; whoever reaches it acts with the proxy's own rights, as with kubectl proxy; 0 is off, -1 any free port")
	fs.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "`PORT` for HTTPS; each client has the rights of its bearer token or its client certificate; 0 is off, -1 any free port")
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "`IP` address of the secure port")
	fs.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "`PORT` for /livez, /readyz, /metrics, /debug/watchers and /debug/pprof over plain HTTP; 0 is off, -1 any free port")
	fs.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "`IP` address of the admin port")
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve /debug/pprof on the admin port, and /debug/watchers to other hosts too")
	fs.StringVar(&o.PortsFile, "ports-file", o.PortsFile, "`FILE` to write the chosen addresses to, as JSON, once all ports are open")

	fs.StringVar(&o.TLSCertFile, "tls-cert-file", o.TLSCertFile, "`FILE` with the secure port's certificate, read again when it changes (default a self-signed one in --cert-dir)")
	fs.StringVar(&o.TLSPrivateKeyFile, "tls-private-key-file", o.TLSPrivateKeyFile, "`FILE` with the certificate's private key")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "`DIRECTORY` for the self-signed certificate")

	fs.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "`FILE` with the authorities that sign client certificates, read again when it changes (default none: no client certificates)")
	fs.BoolVar(&o.AnonymousAuth, "anonymous-auth", o.AnonymousAuth, "pass requests to the secure port without any credential on to kube-apiserver, as system:anonymous's")
	fs.StringVar(&o.RequestHeaderClientCAFile, "requestheader-client-ca-file", o.RequestHeaderClientCAFile, "`FILE` with the authorities that sign the certificates of front proxies, which name users in headers (default none: no front proxies)")
	fs.Var((*listValue)(&o.RequestHeaderAllowedNames), "requestheader-allowed-names", "common `NAMES` that front proxies' certificates may have (default any)")
	fs.Var((*listValue)(&o.RequestHeaderUsernameHeaders), "requestheader-username-headers", "`HEADERS` in which front proxies name a user, usually X-Remote-User")
	fs.Var((*listValue)(&o.RequestHeaderUIDHeaders), "requestheader-uid-headers", "`HEADERS` in which front proxies name a user's uid, usually X-Remote-Uid")
	fs.Var((*listValue)(&o.RequestHeaderGroupHeaders), "requestheader-group-headers", "`HEADERS` in which front proxies name a user's groups, usually X-Remote-Group")
	fs.Var((*listValue)(&o.RequestHeaderExtraPrefixes), "requestheader-extra-headers-prefix", "`PREFIXES` of headers in which front proxies say more about a user, usually X-Remote-Extra-")

	fs.Var((*listValue)(&o.Resident), "resident-resources", "`RESOURCES` to watch from the start and for good, comma-separated: pods, v1/configmaps, apps/v1/deployments")
	fs.DurationVar(&o.IdleTimeout, "idle-timeout", o.IdleTimeout, "`DURATION` for which a resource is still watched upstream after its last client")
	fs.DurationVar(&o.FreshnessTimeout, "freshness-timeout", o.FreshnessTimeout, "`DURATION` for which a request waits for state as new as it asks for")
	fs.DurationVar(&o.MinRequestTimeout, "min-request-timeout", o.MinRequestTimeout, "least `DURATION` of a watch that names none; each gets up to twice that")
	fs.BoolVar(&o.CompressWatches, "compress-watches", o.CompressWatches, "serve watches as gzip to clients that accept it, compressed once for all of them")

	fs.IntVar(&o.HistoryFrames, "history-frames", o.HistoryFrames, "past `EVENTS` kept for each resource, from which watches can resume")
	fs.Var((*sizeValue)(&o.HistoryBytes), "history-bytes", "most `BYTES` of past events kept for each resource, as 64Mi")
	fs.IntVar(&o.ClientBufferFrames, "client-buffer-frames", o.ClientBufferFrames, "`EVENTS` that one watch may fall behind before it is ended")
	fs.Var((*sizeValue)(&o.ClientBufferBytes), "client-buffer-bytes", "`BYTES` that one watch may fall behind before it is ended, as 32Mi")

	fs.DurationVar(&o.ShutdownDelayDuration, "shutdown-delay-duration", o.ShutdownDelayDuration, "`DURATION` to go on serving, with /readyz failing, after SIGTERM")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "`DURATION` that requests may then take to end")
}

// flagGroups is the order of PrintFlags.
var flagGroups = []struct {
	title string
	names []string
}{
	{"Cluster", []string{"kubeconfig", "context"}},
	{"Serving", []string{"insecure-port", "secure-port", "bind-address", "tls-cert-file", "tls-private-key-file", "cert-dir"}},
	{"Clients", []string{"client-ca-file", "anonymous-auth", "requestheader-client-ca-file", "requestheader-allowed-names", "requestheader-username-headers",
		"requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix"}},
	{"Watching", []string{"resident-resources", "idle-timeout", "freshness-timeout", "min-request-timeout", "compress-watches"}},
	{"Memory", []string{"history-frames", "history-bytes", "client-buffer-frames", "client-buffer-bytes"}},
	{"Operation", []string{"admin-port", "admin-bind-address", "profiling", "ports-file", "shutdown-delay-duration", "shutdown-timeout"}},
}

// PrintFlags writes the flags of fs in groups, those that are not of Options last.
func PrintFlags(w io.Writer, fs *flag.FlagSet) {
	printed := make(map[string]bool)
	for _, group := range flagGroups {
		fmt.Fprintf(w, "\n%s:\n", group.title)
		for _, name := range group.names {
			if f := fs.Lookup(name); f != nil {
				printFlag(w, f)
				printed[name] = true
			}
		}
	}
	fmt.Fprintf(w, "\nProgram:\n")
	fs.VisitAll(func(f *flag.Flag) {
		if !printed[f.Name] {
			printFlag(w, f)
		}
	})
}

func printFlag(w io.Writer, f *flag.Flag) {
	kind, usage := flag.UnquoteUsage(f)
	fmt.Fprintf(w, "  %s\n", strings.TrimSpace("--"+f.Name+" "+kind))
	if f.DefValue != "" && f.DefValue != "false" {
		usage += " (default " + f.DefValue + ")"
	}
	line := "       "
	for word := range strings.FieldsSeq(usage) {
		if len(line)+1+len(word) > 100 {
			fmt.Fprintln(w, line)
			line = "       "
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}

// Validate reports everything that is wrong with o, each error with what to do about it.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	ports := make(map[int]string)
	for _, p := range []struct {
		flag string
		port int
	}{{"--insecure-port", o.InsecurePort}, {"--secure-port", o.SecurePort}, {"--admin-port", o.AdminPort}} {
		if p.port < AnyPort || p.port > 65535 {
			wrong("%s=%d is no port: give 1 to 65535, 0 for off, or -1 for any free one", p.flag, p.port)
		}
		if other := ports[p.port]; other != "" && p.port > 0 {
			wrong("%s and %s are both %d: give one of them another port, or 0 for off", other, p.flag, p.port)
		}
		ports[p.port] = p.flag
	}
	if o.InsecurePort == 0 && o.SecurePort == 0 {
		wrong("--insecure-port and --secure-port are both off: give one of them a port to serve on")
	}
	for _, a := range []struct{ flag, address string }{{"--bind-address", o.BindAddress}, {"--admin-bind-address", o.AdminBindAddress}} {
		if net.ParseIP(a.address) == nil {
			wrong("%s=%q is no IP address: give one, for example 0.0.0.0 or 127.0.0.1", a.flag, a.address)
		}
	}
	if (o.TLSCertFile == "") != (o.TLSPrivateKeyFile == "") {
		wrong("--tls-cert-file and --tls-private-key-file go together: give both, or neither for a self-signed certificate")
	}
	if o.SecurePort != 0 && o.TLSCertFile == "" && o.CertDir == "" {
		wrong("--cert-dir is empty: name a writable directory for the self-signed certificate, give --tls-cert-file, or turn the secure port off with --secure-port=0")
	}
	if o.RequestHeaderClientCAFile != "" && len(o.RequestHeaderUsernameHeaders) == 0 {
		wrong("--requestheader-client-ca-file is of no use without --requestheader-username-headers: give both, usually with X-Remote-User")
	}
	for _, name := range o.Resident {
		if !resourceName.MatchString(name) {
			wrong("--resident-resources: %q is no resource: give plural names such as pods, deployments.apps or apps/v1/deployments", name)
		}
	}
	for _, d := range []struct {
		flag      string
		value     time.Duration
		mayBeZero bool
	}{
		{"--idle-timeout", o.IdleTimeout, true},
		{"--freshness-timeout", o.FreshnessTimeout, false},
		{"--min-request-timeout", o.MinRequestTimeout, false},
		{"--shutdown-delay-duration", o.ShutdownDelayDuration, true},
		{"--shutdown-timeout", o.ShutdownTimeout, true},
	} {
		if d.value < 0 || d.value == 0 && !d.mayBeZero {
			wrong("%s=%s is too short: give a positive duration, for example 30s", d.flag, d.value)
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int64
	}{
		{"--history-frames", int64(o.HistoryFrames), 1},
		{"--client-buffer-frames", int64(o.ClientBufferFrames), 1},
		{"--history-bytes", o.HistoryBytes, 1 << 20},
		{"--client-buffer-bytes", o.ClientBufferBytes, 1 << 20},
	} {
		if n.value < n.least {
			wrong("%s=%d is too small: give at least %d", n.flag, n.value, n.least)
		}
	}
	return errors.Join(errs...)
}

// resourceName is how --resident-resources names a resource; see discovery.resolve.
var resourceName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*(/[a-z0-9.-]+){0,2}$`)

// sizeValue is a flag of bytes, spelled as Kubernetes spells quantities.
type sizeValue int64

func (v *sizeValue) String() string {
	if v == nil {
		return ""
	}
	return resource.NewQuantity(int64(*v), resource.BinarySI).String()
}

func (v *sizeValue) Set(s string) error {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return fmt.Errorf("%w; give bytes as 67108864, 64Mi or 1Gi", err)
	}
	*v = sizeValue(q.Value())
	return nil
}

// listValue is a comma-separated flag; giving it again adds to it.
type listValue []string

func (v *listValue) String() string {
	if v == nil {
		return ""
	}
	return strings.Join(*v, ",")
}

func (v *listValue) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*v = append(*v, name)
		}
	}
	return nil
}

// listenAddress returns the address for net.Listen, whatever AnyPort means there.
func listenAddress(ip string, port int) string {
	if port == AnyPort {
		port = 0
	}
	return net.JoinHostPort(cmp.Or(ip, "127.0.0.1"), fmt.Sprint(port))
}
