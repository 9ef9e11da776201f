//go:build linux

package main

import (
	"context"
	"fmt"
	"strconv"
)

func http2CrowdSection() *section {
	return &section{
		bench: "HTTP2Crowd",
		title: fmt.Sprintf("A crowd of idle watchers over HTTP/2 and TLS, %d on a connection, "+
			"and three events that reach them in the end", mostStreams),
		note:    "Kernel memory covers both ends of each connection. Latency is to the last byte of each watcher.",
		columns: crowdColumns,
	}
}

// http2Crowd measures very many watchers at watchfan's secure port. At kube-apiserver so many would
// need 5 GiB; the http2 part has a row for fewer.
func (p *program) http2Crowd(ctx context.Context, st *stage) error {
	if st.peer != watchfanTLS {
		return nil
	}
	n := p.opts.HTTP2Crowd
	x := sample{peer: st.peer, axes: []axis{{"clients", strconv.Itoa(n)}, {"streams", strconv.Itoa(mostStreams)}}}
	ctx, cancel := context.WithTimeoutCause(ctx, crowdTime, fmt.Errorf("not done after %v", crowdTime))
	defer cancel()
	x.metrics, x.err = p.measureCrowd(ctx, st, n, func(f *fleet) { f.h2 = &multiplex{mostStreams, largeSteps} })
	return p.note(context.WithoutCancel(ctx), st, partHTTP2Crowd, x, 9)
}
