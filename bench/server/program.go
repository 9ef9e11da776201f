package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/watchfan/watchfan/bench/load"
)

// A Program is a client that is no part of bench.
type Program struct {
	*Child
	Proxy *Proxy        // of its own; nil at kube-apiserver
	At    load.Endpoint // of the program's server
	State string        // its file
}

// StartProgram starts a program with a kubeconfig for the cluster, or for a path at a watchfan of its own with a
// configuration, which fill fills first; without a watchfan, these do not count. In args, $KUBECONFIG, $PORT and $STATE
// are replaced. The program must be stopped in any case.
func (c *Cluster) StartProgram(ctx context.Context, watchfan, config, path string, fill func(*Proxy) error,
	program string, args ...string) (p Program, err error) {
	own := *c
	own.roots = nil
	if own.dir, err = os.MkdirTemp(c.dir, "program-"); err != nil {
		return p, err
	}
	if p.At.Addr, err = freeAddr(); err != nil {
		return p, err
	}
	p.State = filepath.Join(own.dir, "state")
	if watchfan != "" {
		file := filepath.Join(own.dir, "config.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return p, err
		}
		if p.Proxy, err = StartProxy(ctx, watchfan, &own, "--config", file); err != nil {
			return p, err
		}
		if err := fill(p.Proxy); err != nil {
			return p, err
		}
		own.kubeconfig = filepath.Join(own.dir, "kubeconfig")
		err = os.WriteFile(own.kubeconfig, fmt.Appendf(nil, `{"kind":"Config","current-context":"c",`+
			`"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"c","user":{"token":%q}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`, p.Proxy.TLS.URL()+path, filepath.Join(own.dir, "watchfan.crt"), c.Token), 0o600)
	}
	values := map[string]string{"KUBECONFIG": own.kubeconfig, "PORT": fmt.Sprint(p.At.Addr.Port()), "STATE": p.State}
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = os.Expand(arg, func(name string) string { return values[name] })
	}
	var failed error
	p.Child, failed = startChild(filepath.Base(program), program, expanded...)
	return p, errors.Join(err, failed)
}

// Stop ends the program and its watchfan.
func (p *Program) Stop() {
	if p.Child != nil {
		p.Child.Stop()
	}
	if p.Proxy != nil {
		p.Proxy.Child.Stop()
	}
}
