package seed

import (
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Siblings are hosts with or without a port. A wrong name is reported with what to give instead.
func TestOptions(t *testing.T) {
	f := func(o Options, certFile, want string) {
		t.Helper()
		given := o
		table := &option.Table{}
		o.AddTo(table)
		table.SetDefaults()
		o = given
		err := table.Check()
		if err == nil {
			err = o.Check(table, certFile)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: got %v, want %q", o, err, want)
		}
	}
	f(Options{}, "", "")
	f(Options{SeedFrom: []string{"watchfan-replicas.watchfan.svc", "10.0.0.7", "10.0.0.7:9443", "[::1]:8443", "::1"}}, "tls.crt", "")
	f(Options{SeedFrom: []string{"a"}}, "", "--seed-certificate-authority")
	f(Options{SeedFrom: []string{"a"}, SeedCertificateAuthority: "ca.crt"}, "", "")
	for _, wrong := range []string{":8443", "a:", "a:0", "a:70000", "a:https", "a:1:2", "https://a"} {
		f(Options{SeedFrom: []string{wrong}}, "tls.crt", "is no host: give names such as")
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string][2]string{
		"a.b.svc": {"a.b.svc", "8443"}, "a:1": {"a", "1"}, "::1": {"::1", "8443"}, "[::1]:7": {"::1", "7"},
	} {
		if host, port := split(name); host != want[0] || port != want[1] {
			t.Errorf("%s: got %q and %q", name, host, port)
		}
	}
}
