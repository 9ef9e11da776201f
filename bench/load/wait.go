package load

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// InParallel calls do for each number from first up to n, eight at a time. It returns the first
// error, or the one that ended ctx, when all calls have returned.
func InParallel(ctx context.Context, first, n int, do func(ctx context.Context, i int) error) error {
	all, inner := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for i := first; i < n && inner.Err() == nil; i++ {
		all.Go(func() error { return do(inner, i) })
	}
	err := all.Wait()
	return cmp.Or(context.Cause(ctx), err)
}

// ReadJob reads the job of a helper process, a line of JSON. Its orders follow.
func ReadJob(in *bufio.Reader, job any) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	return json.Unmarshal(line, job)
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// OtherFiles is the number of open files that a process needs beside its connections.
const OtherFiles = 256

// RoomFor returns the number of connections that this process and each of its servers may have.
func RoomFor() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Max, 1<<30)) - OtherFiles
}

// RaiseFileLimit makes room for n connections here and in the servers, which inherit the limit.
func RaiseFileLimit(n int) error {
	most := RoomFor() + OtherFiles
	if need := n + OtherFiles; need > most {
		return fmt.Errorf("%d watchers need %d open files, and this process may have %d: "+
			"raise the hard limit (ulimit -Hn) first", n, need, most)
	}
	limit := &syscall.Rlimit{Cur: uint64(most), Max: uint64(most)}
	return os.NewSyscallError("setrlimit", syscall.Setrlimit(syscall.RLIMIT_NOFILE, limit))
}
