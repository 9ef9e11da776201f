package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/watchfan/watchfan/bench/load"
)

// A Program is a client that is no part of bench.
type Program struct {
	*Child
	At    load.Endpoint // of the program's server
	State string        // its file
}

// StartProgram starts a program with the kubeconfig of the cluster, or with one for a path at a watchfan in front
// of it. In args, $KUBECONFIG, $PORT and $STATE are replaced.
func (c *Cluster) StartProgram(p *Proxy, path, program string, args ...string) (*Program, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	port, kubeconfig := fmt.Sprint(addr.Port()), c.kubeconfig
	if p != nil {
		kubeconfig, err = c.WriteFile("kubeconfig-"+port, fmt.Appendf(nil, `{"kind":"Config","current-context":"c",`+
			`"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],"users":[{"name":"c","user":{"token":%q}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}`, p.TLS.URL()+path, c.certFile, c.Token))
		if err != nil {
			return nil, err
		}
	}
	values := map[string]string{"KUBECONFIG": kubeconfig, "PORT": port, "STATE": filepath.Join(c.dir, "state-"+port)}
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = os.Expand(arg, func(name string) string { return values[name] })
	}
	child, err := startChild(filepath.Base(program), program, expanded...)
	if err != nil {
		return nil, err
	}
	return &Program{child, load.Endpoint{Addr: addr}, values["STATE"]}, nil
}
