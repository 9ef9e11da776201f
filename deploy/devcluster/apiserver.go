package main

import (
	"errors"
	"strconv"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of its own clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
)

const apiserverName = "kube-apiserver"

// serviceAccountIssuer is what kubeadm sets.
const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// apiserverArgs returns the arguments of the kube-apiserver child.
func apiserverArgs(d Dir, opts Options, state State) []string {
	args := []string{
		"--etcd-servers=" + state.etcdEndpoint(),
		"--secure-port=" + strconv.Itoa(state.SecurePort),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--permit-port-sharing=true",      // see PortReservation
		"--endpoint-reconciler-type=none", // endpoints must not be loopback addresses
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + d.file(servingCertFile),
		"--tls-private-key-file=" + d.file(servingKeyFile),
		"--client-ca-file=" + d.file(caCertFile),
		"--token-auth-file=" + d.file(tokenAuthFile),
		"--authorization-mode=RBAC",
		"--allow-privileged=true",
		"--service-account-issuer=" + serviceAccountIssuer,
		"--service-account-key-file=" + d.file(accountPublicFile),
		"--service-account-signing-key-file=" + d.file(accountKeyFile),
		"--v=" + strconv.Itoa(opts.Verbosity),
	}
	if !opts.ServiceAccounts {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // nobody creates the default accounts
	}
	for _, arg := range opts.APIServerArgs {
		args = append(args, "--"+arg)
	}
	return args
}

// runAPIServer is the kube-apiserver child: it serves until SIGTERM.
func runAPIServer(args []string) error {
	setProcessName(apiserverName)
	command := app.NewAPIServerCommand()
	command.SetArgs(args)
	if cli.Run(command) != 0 {
		return errors.New("kube-apiserver failed") // cli.Run has logged why
	}
	return nil
}
