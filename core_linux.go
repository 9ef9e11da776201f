package main

import "golang.org/x/sys/unix"

// forbidCores keeps what the process holds (objects, tokens, keys) out of core files, whatever
// GOTRACEBACK, the shell or the container runtime allow. Go itself writes only stacks and addresses
// when it crashes.
//
// The limit is 1 byte and not 0, because 0 only forbids files: where cores are piped to a program
// (core(5), /proc/sys/kernel/core_pattern) the kernel does so whatever the limit, unless it is 1.
// No file is that small.
//
// PR_SET_DUMPABLE would do as much, but give /proc/self to root, where the process reads its own
// metrics.
func forbidCores() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, 1)
	limit.Cur = limit.Max
	return unix.Setrlimit(unix.RLIMIT_CORE, &limit)
}
