package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// Options say what `devcluster up` runs, and where.
type Options struct {
	// Dir keeps the state. Empty means a fresh temporary directory, removed
	// at exit.
	Dir string

	// SecurePort and EtcdPort are the TCP ports of kube-apiserver and etcd.
	// Zero means the port used in Dir before, or else any free one.
	SecurePort int
	EtcdPort   int

	// Memory keeps etcd's data in /dev/shm, unless Dir is in memory already.
	// Dir remembers the choice.
	Memory bool

	// UnsafeNoFsync lets etcd acknowledge writes that are not yet on disk.
	// They survive a killed etcd, not a crashed machine.
	UnsafeNoFsync bool

	// Kubeconfig is where to write another copy of the admin kubeconfig.
	// Empty means Dir/kubeconfig only.
	Kubeconfig string

	// APIServerArgs are more kube-apiserver flags, as name=value. They come
	// last, so they override ours.
	APIServerArgs []string

	// ServiceAccounts turns ServiceAccount admission on: pods get tokens, as in
	// a cluster with a controller manager. See keepAccounts.
	ServiceAccounts bool

	// RestartDelay is how long a child that died by itself stays dead.
	RestartDelay time.Duration

	// Verbosity is the log level of kube-apiserver; from 4 on, etcd logs at
	// level debug too.
	Verbosity int
}

// AddFlags defines the flags of `devcluster up` and sets the defaults.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Dir, "dir", "", "`directory` of data, ports, certificates and tokens; used again, it continues the same cluster (default a temporary one, removed at exit)")
	fs.IntVar(&o.SecurePort, "secure-port", 0, "kube-apiserver's `port` on 127.0.0.1 (default the one used before in --dir, or any free one)")
	fs.IntVar(&o.EtcdPort, "etcd-port", 0, "etcd's client `port` on 127.0.0.1 (default the one used before in --dir, or any free one)")
	fs.BoolVar(&o.Memory, "memory", false, "keep etcd's data in /dev/shm, unless --dir is in memory already")
	fs.BoolVar(&o.UnsafeNoFsync, "unsafe-no-fsync", false, "let etcd acknowledge writes before they are on disk; a machine crash can lose data")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "write the admin kubeconfig to this `path` too (default only kubeconfig in --dir)")
	fs.Func("apiserver-arg", "another kube-apiserver flag as `name=value`, such as feature-gates=WatchList=false; may be repeated", func(arg string) error {
		o.APIServerArgs = append(o.APIServerArgs, strings.TrimLeft(arg, "-"))
		return nil
	})
	fs.BoolVar(&o.ServiceAccounts, "service-accounts", false, "admit pods as a whole cluster does, with a token volume: every namespace has the account default and the ConfigMap kube-root-ca.crt")
	fs.DurationVar(&o.RestartDelay, "restart-delay", time.Second, "how long etcd or kube-apiserver stays down after it died by itself")
	fs.IntVar(&o.Verbosity, "v", 0, "log `level` of kube-apiserver; from 4 on etcd logs debug messages too")
}

// Validate reports the first option that cannot work.
func (o *Options) Validate() error {
	for _, port := range []int{o.SecurePort, o.EtcdPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("port %d: want 0 to 65535", port)
		}
	}
	if o.SecurePort != 0 && o.SecurePort == o.EtcdPort {
		return errors.New("--secure-port and --etcd-port are the same")
	}
	if o.RestartDelay < 0 {
		return fmt.Errorf("--restart-delay %v: want 0 or more", o.RestartDelay)
	}
	return nil
}
