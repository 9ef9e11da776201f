package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/bench/load"
)

// checkOptions parses and validates the options of a command. It returns a function that does so
// with more arguments, and compares the error with a part of it; "" is none.
func checkOptions[O any, P interface {
	*O
	options
}](t *testing.T) func(want string, args ...string) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(want string, args ...string) {
		t.Helper()
		binaries := []string{"--devcluster", program, "--watchfan", program}
		fs := flag.NewFlagSet(t.Name(), flag.ContinueOnError)
		fs.SetOutput(t.Output())
		err := parseFlags(fs, P(new(O)), append(binaries, args...))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: got %v want %q", args, err, want)
		}
	}
}

func TestOptions(t *testing.T) {
	f := checkOptions[Options](t)
	f("")
	f("", "--quick", "--peers", "watchfan/plain, kube-apiserver/tls", "--clients", "0,10", "--rates", "max,12.5")
	f("", "--parts", "egress", "--egress-rates", "5,max")
	f("want one of kube-apiserver/tls,watchfan/tls,watchfan/plain", "--peers", "kube-apiserver/plain")
	f("want max or a number", "--rates", "NaN")
	f("-1 is not from 0", "--clients", "-1")
	f("not a path", "--out", "../x")
	f("raise the hard limit", "--clients", "100000000")
	f("make devcluster", "--devcluster", "/nonexistent")
	f("make build", "--watchfan", "/etc/passwd")
}

func TestOffered(t *testing.T) {
	o := newOptions()
	f := func(asked load.Rate, watchers int, want load.Rate) {
		t.Helper()
		if got := o.offered(asked, watchers); got != want {
			t.Errorf("%v/s to %d watchers: got %v want %v", asked, watchers, got, want)
		}
	}
	f(50, 1000, 50)
	f(50, 100, 50)
	f(50, 20_000, 2.5)
	f(50, 19_000, 2.63)
	f(50, 0, 50)
	f(load.Unpaced, 20_000, load.Unpaced)
}
