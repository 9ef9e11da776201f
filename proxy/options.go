package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/admission"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/pass/fallback"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/cached"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/store/seed"
	"github.com/watchfan/watchfan/proxy/store/selfcheck"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/http2"
)

// AnyPort as a port number lets the system choose a free one.
const AnyPort = -1

// Options describes the connection to kube-apiserver, the ports, and the limits on clients.
// NewOptions returns the defaults. The zero value is not usable.
//
// Each exported field, apart from Version, is a row of a table. The row says what the field does, and
// has its default, its bounds, its flag and its field of the configuration file. The names correspond:
// Auth.ClientCAFile is --client-ca-file and clientCAFile.
type Options struct {
	Upstream   upstream.Options
	Seed       seed.Options
	Fallback   fallback.Options
	Downstream downstream.Options
	HTTP2      http2.Options
	Auth       auth.Options
	Cached     cached.Options
	Lane       lane.Options
	SelfCheck  selfcheck.Options
	Audit      audit.Options
	View       view.Options
	Observe    observe.Options
	Admission  admission.Options
	Consumers  consumers.Options

	InsecurePort, SecurePort, AdminPort int
	BindAddress, AdminBindAddress       string
	Profiling                           bool
	PortsFile                           string

	// These times follow one another; see package wire, Restarts.
	ShutdownDelayDuration, DrainDuration, ShutdownTimeout time.Duration

	LogLevel  slog.Level
	LogFormat string

	// Version is the version of this program that /debug/lanes and the status page show. main sets
	// it; it has no flag.
	Version string

	// places are the places in a configuration file that set options; see option.Table.
	places map[string]string
	// configFile is the configuration file, which is looked at again for rules; "" for none.
	configFile string
	// readMemory returns the memory in use. If it is nil, the system's figure is used.
	readMemory func() (int64, error)
}

// NewOptions returns the defaults.
func NewOptions() Options {
	o := Options{Cached: cached.Options{Tuning: cached.Tuning{MostAlone: 4}}}
	o.table().SetDefaults()
	return o
}

// table returns all options, bound to o's fields.
func (o *Options) table() *option.Table {
	t := &option.Table{
		APIVersion: "watchfan.io/v1alpha1",
		Kind:       "WatchfanConfiguration",
		Titles: []string{"Upstream", "Serving", "Clients", "Authentication", "Authorization", "Caching", "Siblings", "Fallback",
			"Connections", "Limits", "Consumers", "Observability", "Audit", "Shutdown"},
		Places: o.places,
	}
	o.Upstream.AddTo(t)
	o.addPorts(t)
	o.View.AddTo(t)
	o.Observe.AddTo(t)
	o.Auth.AddTo(t)
	o.Cached.AddTo(t)
	o.Lane.AddTo(t)
	o.Seed.AddTo(t)
	o.Fallback.AddTo(t)
	o.Downstream.AddTo(t)
	o.HTTP2.AddTo(t)
	o.Admission.AddTo(t)
	o.Consumers.AddTo(t)
	o.addObservability(t)
	o.SelfCheck.AddTo(t)
	o.Audit.AddTo(t)
	o.addShutdown(t)
	return t
}

func (o *Options) addPorts(t *option.Table) {
	t.Group("Serving")
	t.Int(&o.InsecurePort, "insecure-port", 0, "`PORT` on 127.0.0.1 for plain HTTP, such as 8001; every "+
		"program on this host then has the proxy's own rights, as with kubectl proxy; 0 is off, -1 is any free port", port)
	t.Int(&o.SecurePort, "secure-port", 8443, "`PORT` for HTTPS, over HTTP/1.1 and HTTP/2, where each client has its "+
		"own rights; 0 is off, -1 is any free port", port)
	t.String(&o.BindAddress, "bind-address", "127.0.0.1",
		"`IP` address of the secure port; 0.0.0.0 or :: is all addresses, as in a pod", address)
}

func (o *Options) addObservability(t *option.Table) {
	t.Group("Observability")
	t.Int(&o.AdminPort, "admin-port", 8002, "`PORT` for the status page, /livez, /readyz, /metrics and /debug over plain "+
		"HTTP; 0 is off, -1 is any free port", port)
	t.String(&o.AdminBindAddress, "admin-bind-address", "127.0.0.1", "`IP` address of the admin port", address)
	t.Bool(&o.Profiling, "profiling", true,
		"serve /debug/pprof on the admin port to clients on this host, and /debug/watchers to all hosts")
	t.String(&o.PortsFile, "ports-file", "",
		"`FILE` to write the chosen addresses to, as JSON, once all ports are open (default none)")
	t.Level(&o.LogLevel, "least `LEVEL` to log: debug, info, warn or error", "`NUMBER` of the level, as in Kubernetes' "+
		"components, instead of --log-level: 0 is info, 1 to 3 add client-go's own lines, 4 and more are debug")
	t.String(&o.LogFormat, "log-format", "text",
		"`FORMAT` of the log on standard error: text or json", option.OneOf("text", "json"))
}

func (o *Options) addShutdown(t *option.Table) {
	t.Group("Shutdown")
	t.Duration(&o.ShutdownDelayDuration, "shutdown-delay-duration", 0,
		"`DURATION` of serving after SIGTERM, while /readyz fails", option.NotNegative)
	t.Duration(&o.DrainDuration, "drain-duration", 10*time.Second, "`DURATION` in which the watches then end, one after "+
		"another; their clients continue elsewhere; 0 ends them at once", option.NotNegative)
	t.Duration(&o.ShutdownTimeout, "shutdown-timeout", 10*time.Second,
		"`DURATION` that requests may then take to end", option.NotNegative)
}

// port is the check of a port number.
func port(n int) string {
	if n < AnyPort || n > 65535 {
		return "is no port: give 1 to 65535, 0 for off, or -1 for any free one"
	}
	return ""
}

// address is the check of an address to listen on.
func address(s string) string {
	if net.ParseIP(s) == nil {
		return "is no IP address: give one, for example 0.0.0.0 or 127.0.0.1"
	}
	return ""
}

// Validate reports all errors in o. Each error says how to correct it, and names its place in a
// configuration file.
func (o *Options) Validate() error {
	t := o.table()
	return errors.Join(
		t.Check(),
		o.checkPorts(t),
		o.checkViews(t),
		o.Downstream.Check(t, o.SecurePort != 0),
		o.Auth.Check(t),
		o.Seed.Check(t, o.Downstream.TLSCertFile),
		o.Fallback.Check(t, o.SecurePort, listenAddress(o.AdminBindAddress, o.AdminPort), len(o.Cached.ResidentResources) > 0),
		o.Cached.Check(t, o.SecurePort != 0))
}

// checkViews reports rules of clients with views that there are not.
func (o *Options) checkViews(t *option.Table) error {
	var errs []error
	for _, r := range o.Observe.Clients {
		named := func(v view.Config) bool { return string(v.Name) == string(r.View) }
		if r.View != "" && r.View != view.Lean && !slices.ContainsFunc(o.View.Views, named) {
			errs = append(errs, fmt.Errorf("%s: there is no view %q: give lean, or the name of one of views",
				t.Named("clients"), r.View))
		}
	}
	return errors.Join(errs...)
}

// checkPorts reports ports with the same number. It also reports that both client ports are off.
func (o *Options) checkPorts(t *option.Table) error {
	var errs []error
	flags := make(map[int]string) // by port
	for _, p := range []struct {
		flag string
		port int
	}{{"insecure-port", o.InsecurePort}, {"secure-port", o.SecurePort}, {"admin-port", o.AdminPort}} {
		if other := flags[p.port]; other != "" && p.port > 0 {
			errs = append(errs, fmt.Errorf("%s is that of %s too: give one of them another port, or 0 for off",
				t.Given(p.flag, p.port), t.Named(other)))
		}
		flags[p.port] = p.flag
	}
	if o.InsecurePort == 0 && o.SecurePort == 0 {
		errs = append(errs, fmt.Errorf("%s and %s are both off: give one of them a port to serve on",
			t.Named("insecure-port"), t.Named("secure-port")))
	}
	return errors.Join(errs...)
}

// listenAddress returns the address for net.Listen, where AnyPort is 0.
func listenAddress(ip string, port int) string {
	if port == AnyPort {
		port = 0
	}
	return net.JoinHostPort(cmp.Or(ip, "127.0.0.1"), fmt.Sprint(port))
}

// Flags are options as flags, and the flag that names their file.
type Flags struct {
	Options
	Table *option.Table // of the options, bound to them

	config string // file name
}

// NewFlags returns flags that set Options. Until they are parsed, Options has the defaults.
func NewFlags() *Flags {
	f := &Flags{Options: NewOptions()}
	f.Table = f.Options.table()
	f.Table.Group("Program")
	f.Table.Flag(&f.config, "config", "`FILE` with the configuration, as watchfan config prints it; flags win over it; "+
		"read at the start, and its clients and views again when it changes (default none)")
	return f
}

// Complete reads the configuration file that --config names, after the flags have been parsed. The
// file overrides the defaults, and no flag that has been given. An error names the file, the line and
// the field. Complete does not validate the options.
func (f *Flags) Complete() error {
	if f.config == "" {
		return nil
	}
	err := f.Table.ReadFile("config", f.config)
	f.places, f.configFile = f.Table.Places, f.config
	return err
}

// WriteConfig writes o as a configuration file with all fields. Reading the file gives the same
// options.
func (o *Options) WriteConfig(w io.Writer) error { return o.table().WriteConfig(w) }
