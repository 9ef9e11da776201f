package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Up runs a cluster until ctx ends, and then stops it.
func Up(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	d, err := makeDir(opts.Dir)
	if err != nil {
		return err
	}
	temporary := opts.Dir == ""
	if temporary {
		defer os.RemoveAll(string(d))
	}
	lock, err := lockDir(d)
	if err != nil {
		return err
	}
	defer lock.Close()
	d.remove(readyFile) // of a run that was killed
	state, err := loadState(d, opts)
	if err != nil {
		return err
	}
	for _, port := range []*int{&state.SecurePort, &state.EtcdPort, &state.EtcdPeerPort} {
		reservation, err := reservePort(*port)
		if err != nil {
			return err
		}
		defer reservation.Release()
		*port = reservation.Port
	}
	if temporary {
		defer os.RemoveAll(state.EtcdDir)
	}
	if err := writeFiles(d, state); err != nil {
		return err
	}
	if opts.Kubeconfig != "" {
		if err := writeExtraKubeconfig(opts.Kubeconfig, d); err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		if temporary {
			defer os.Remove(opts.Kubeconfig)
		}
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := &Cluster{
		opts:      opts,
		dir:       d,
		state:     state,
		say:       NewNarrator(os.Stderr),
		stop:      stop,
		etcd:      &Process{name: etcdName, args: etcdArgs(opts, state), dir: d, lock: lock},
		apiserver: &Process{name: apiserverName, args: apiserverArgs(d, opts, state), dir: d, lock: lock},
		restartc:  make(chan restartRequest),
	}
	return c.Run(ctx)
}

// writeFiles writes what the children and their clients read.
func writeFiles(d Dir, state State) error {
	if err := os.MkdirAll(state.EtcdDir, 0o700); err != nil {
		return err
	}
	if err := state.save(d); err != nil {
		return err
	}
	if err := writePKI(d); err != nil {
		return err
	}
	if err := writeTokens(d); err != nil {
		return err
	}
	return writeKubeconfigs(d, state.server())
}

// makeDir makes the directory path, or a temporary one if path is empty.
func makeDir(path string) (Dir, error) {
	if path == "" {
		path, err := os.MkdirTemp("", "devcluster-")
		return Dir(path), err
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return Dir(path), os.MkdirAll(path, 0o700)
}
