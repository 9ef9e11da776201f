package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

const etcdName = "etcd"

// etcdArgs returns the arguments of the etcd child.
func etcdArgs(opts Options, state State) []string {
	peer := fmt.Sprintf("http://127.0.0.1:%d", state.EtcdPeerPort)
	args := []string{
		"--name=" + clusterName,
		"--data-dir=" + state.EtcdDir,
		"--listen-client-urls=" + state.etcdEndpoint(),
		"--advertise-client-urls=" + state.etcdEndpoint(),
		"--listen-peer-urls=" + peer, // etcd insists, though there are no peers
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + clusterName + "=" + peer,
		"--socket-reuse-port=true", // see PortReservation

		// The default of 2GiB is too little for a benchmark: kube-apiserver
		// compacts every five minutes, and until then each version of each
		// object counts.
		"--quota-backend-bytes=8589934592",

		// As kubeadm does, so that bookmarks come as often as in a real cluster.
		progressNotifyFlag(version.Version) + "=5s",

		// A single member elects itself when the timeout has passed, which
		// starts it half a second sooner than with the default of 1000.
		"--heartbeat-interval=50",
		"--election-timeout=250",
	}
	if opts.UnsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	if opts.Verbosity >= 4 {
		args = append(args, "--log-level=debug")
	}
	return args
}

// progressNotifyFlag returns the name that a version of etcd has for the flag.
func progressNotifyFlag(etcd string) string {
	if strings.HasPrefix(etcd, "3.5.") {
		return "--experimental-watch-progress-notify-interval"
	}
	return "--watch-progress-notify-interval"
}

// runEtcd is the etcd child: it serves until SIGTERM and does not return.
func runEtcd(args []string) error {
	setProcessName(etcdName)
	etcdmain.Main(append([]string{etcdName}, args...))
	return nil
}

// etcdHealthy asks the etcd at endpoint whether it takes writes.
func etcdHealthy(ctx context.Context, endpoint string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/health", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s/health: %s", endpoint, response.Status)
	}
	return nil
}
