package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
)

// runCompact is the command compact.
func runCompact(args []string) error {
	d, err := parseDir("compact", args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	state, err := readState(d)
	if err != nil {
		return err
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)) // else it is kube-apiserver's
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	revision, err := compact(ctx, state.etcdEndpoint())
	if err != nil {
		return err
	}
	fmt.Printf("compacted to revision %d\n", revision)
	return nil
}

// compact makes etcd forget all history before the revision it returns, the
// current one. It returns once the space is free.
func compact(ctx context.Context, endpoint string) (revision int64, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	now, err := client.Get(ctx, "any key tells the revision")
	if err != nil {
		return 0, fmt.Errorf("get revision of etcd at %s: %w", endpoint, err)
	}
	revision = now.Header.Revision
	if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
		return 0, fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return revision, nil
}
