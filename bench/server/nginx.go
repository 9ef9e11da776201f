package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
)

// nginxConf is one process that speaks HTTP/2 to clients, and HTTP/1.1 over TLS to kube-apiserver on
// connections that it keeps. It never sends clients to another connection.
const nginxConf = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/nginx-body;
	proxy_temp_path %[1]s/nginx-proxy;
	fastcgi_temp_path %[1]s/nginx-fastcgi;
	uwsgi_temp_path %[1]s/nginx-uwsgi;
	scgi_temp_path %[1]s/nginx-scgi;
	upstream apiserver {
		server %[2]s;
		keepalive 64;
		keepalive_requests 1000000000;
	}
	server {
		listen 127.0.0.1:%[3]d ssl http2;
		ssl_certificate %[4]s;
		ssl_certificate_key %[5]s;
		location / {
			proxy_pass https://apiserver;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// StartNginx runs nginx in front of c and waits until it listens.
func StartNginx(ctx context.Context, nginx string, c *Cluster) (*Proxy, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf, err := c.WriteFile("nginx.conf", fmt.Appendf(nil, nginxConf, c.dir, c.Addr, addr.Port(), c.certFile, c.keyFile))
	if err != nil {
		return nil, err
	}
	child, err := startChild(report.Nginx.Name, nginx, "-e", "stderr", "-c", conf)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Child: child}
	p.TLS = load.Endpoint{Addr: addr, TLS: load.TlsConfig(addr.Addr(), c.roots), Token: c.Token}
	if err := awaitListener(ctx, p); err != nil {
		child.Stop()
		return nil, err
	}
	return p, nil
}

// freeAddr returns an address on loopback at which nobody listens, for a program that cannot choose one itself.
func freeAddr() (netip.AddrPort, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer ln.Close()
	return netip.ParseAddrPort(ln.Addr().String())
}

func awaitListener(ctx context.Context, p *Proxy) error {
	for ctx.Err() == nil {
		if _, err := p.TLS.Get(ctx, "/version"); err == nil {
			return nil
		}
		if err := errors.Join(p.Child.Alive(), load.Sleep(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	return ctx.Err()
}
