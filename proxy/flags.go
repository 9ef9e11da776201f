package proxy

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// flagGroups are the flags in the order of the help and of the configuration file.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"Upstream", []string{"kubeconfig", "context"}},
	{"Serving", []string{"insecure-port", "secure-port", "bind-address", "tls-cert-file", "tls-private-key-file", "cert-dir"}},
	{"Authentication", []string{"client-ca-file", "anonymous-auth", "requestheader-client-ca-file", "requestheader-allowed-names",
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix"}},
	{"Authorization", []string{"authentication-token-webhook-cache-ttl", "authorization-webhook-cache-authorized-ttl",
		"authorization-webhook-cache-unauthorized-ttl", "authorization-recheck-interval"}},
	{"Caching", []string{"resident-resources", "exclude", "cache-aggregated-groups", "idle-timeout", "freshness-timeout", "compress-watches", "flush-interval", "history-frames", "history-bytes"}},
	{"Connections", []string{"max-connections", "max-connection-age", "min-request-timeout"}},
	{"Limits", []string{"client-buffer-frames", "client-buffer-bytes", "max-watches", "max-watches-per-user", "memory-limit"}},
	{"Observability", []string{"admin-port", "admin-bind-address", "profiling", "ports-file", "log-level", "v", "log-format"}},
	{"Audit", []string{"audit-log-path", "audit-log-mode", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize"}},
	{"Shutdown", []string{"shutdown-delay-duration", "drain-duration", "shutdown-timeout"}},
	{"Program", []string{"config", "version"}},
}

// FlagGroups returns the titles of the flags' groups, in lower case.
func FlagGroups() []string {
	var titles []string
	for _, group := range flagGroups {
		titles = append(titles, strings.ToLower(group.title))
	}
	return titles
}

// PrintFlags writes the flags of one of FlagGroups with their units and defaults, or of all of them for "". A group fits a screen of 80 columns and 24 lines.
func PrintFlags(w io.Writer, group string) {
	o := NewOptions()
	fs, _, _ := o.newFlagSet()
	for _, g := range flagGroups {
		if group != "" && group != strings.ToLower(g.title) {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, name := range g.flags {
			printFlag(w, fs.Lookup(name))
		}
	}
}

func printFlag(w io.Writer, f *flag.Flag) {
	kind, usage := flag.UnquoteUsage(f)
	fmt.Fprintf(w, "  %s\n", strings.TrimSpace("--"[:min(2, len(f.Name))]+f.Name+" "+kind))
	if value := valueText(f.Value); value != "" && value != "false" && !strings.Contains(usage, "(default ") {
		usage += " (default " + value + ")"
	}
	line := "     "
	for word := range strings.FieldsSeq(usage) {
		if len(line)+1+len(word) > 80 {
			fmt.Fprintln(w, line)
			line = "     "
		}
		line += " " + word
	}
	fmt.Fprintln(w, line)
}

// valueText returns a flag's value as one would write it: 10m, where time.Duration says 10m0s.
func valueText(v flag.Value) string {
	text := v.String()
	if _, ok := v.(flag.Getter).Get().(time.Duration); ok {
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
	}
	return text
}

const wantBytes = "give bytes as 67108864, 64Mi or 1Gi, less than 8Ei"

// sizeValue is a flag of bytes, spelled as Kubernetes spells quantities.
type sizeValue int64

func (v *sizeValue) Get() any { return int64(*v) }

func (v *sizeValue) String() string {
	if v == nil {
		return ""
	}
	return resource.NewQuantity(int64(*v), resource.BinarySI).String()
}

func (v *sizeValue) Set(s string) error {
	q, err := resource.ParseQuantity(s)
	if err != nil || q.CmpInt64(math.MaxInt64) > 0 || q.CmpInt64(-math.MaxInt64) < 0 {
		return errors.New(wantBytes)
	}
	*v = sizeValue(q.Value())
	return nil
}

// listValue is a comma-separated flag; given for the first time it replaces the values, given again it adds to them.
type listValue struct {
	values *[]string
	given  bool
}

func (v *listValue) Get() any { return slices.Clone(*v.values) }

func (v *listValue) String() string {
	if v.values == nil {
		return ""
	}
	return strings.Join(*v.values, ",")
}

func (v *listValue) Set(s string) error {
	if !v.given {
		*v.values, v.given = nil, true
	}
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*v.values = append(*v.values, name)
		}
	}
	return nil
}
