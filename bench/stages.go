//go:build linux

package main

import (
	"context"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/report"
	"github.com/watchfan/watchfan/bench/server"
)

// newStage starts a stage. stop must be called.
func newStage(ctx context.Context, o *Options, p report.Peer) (*server.Stage, error) {
	s := &server.Stage{Peer: p, Coll: load.NewCollection(load.ObjectConfigMaps, o.Objects, 0)}
	if err := startStage(ctx, s, o); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func startStage(ctx context.Context, s *server.Stage, o *Options) (err error) {
	if s.Cluster, err = server.StartCluster(ctx, o.Devcluster); err != nil {
		return err
	}
	s.Writer = load.NewWriter(s.Cluster.Endpoint, s.Coll, load.NewAcks(), o.Writers, o.behind(s.Peer))
	if err = s.Writer.Create(ctx, o.EventSize, nil); err != nil {
		return err
	}
	if s.Peer != report.Direct {
		s.Proxy, err = server.StartProxy(ctx, o.Watchfan, s.Cluster, "--flush-interval="+o.FlushInterval.String())
	}
	return err
}
