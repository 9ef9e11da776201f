//go:build !linux

package proxy

import "errors"

type cgroup struct{ limit int64 }

func (cgroup) used() (int64, error) { return 0, errors.ErrUnsupported }

func ownCgroup() (cgroup, bool) { return cgroup{}, false }

func residentMemory() (int64, error) { return 0, errors.ErrUnsupported }

func machineMemory() int64 { return 0 }
