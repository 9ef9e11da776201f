package deploytest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// systemCalls are all that the program may make in TestSeccomp. Each is in the profiles that containerd, CRI-O and
// Docker call default (RuntimeDefault), for processes without capabilities. clone may make no namespace there.
var systemCalls = []uint32{
	unix.SYS_ACCEPT4, unix.SYS_ARCH_PRCTL, unix.SYS_BIND, unix.SYS_CLONE, unix.SYS_CLOSE, unix.SYS_CONNECT,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD2, unix.SYS_EXECVE,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FCHMOD, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_FSYNC, unix.SYS_FTRUNCATE,
	unix.SYS_FUTEX, unix.SYS_GETDENTS64, unix.SYS_GETPEERNAME, unix.SYS_GETPID, unix.SYS_GETRANDOM, unix.SYS_GETRLIMIT,
	unix.SYS_GETRUSAGE, unix.SYS_GETSOCKNAME, unix.SYS_GETSOCKOPT, unix.SYS_GETTID, unix.SYS_LISTEN, unix.SYS_LSEEK,
	unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_MKDIRAT, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_MUNMAP, unix.SYS_NANOSLEEP,
	unix.SYS_NEWFSTATAT, unix.SYS_OPENAT, unix.SYS_PIPE2, unix.SYS_PRCTL, unix.SYS_PREAD64, unix.SYS_PRLIMIT64, unix.SYS_READ,
	unix.SYS_READLINKAT, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RENAMEAT, unix.SYS_RESTART_SYSCALL, unix.SYS_RT_SIGACTION,
	unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD, unix.SYS_SENDMSG,
	unix.SYS_SENDTO, unix.SYS_SETITIMER, unix.SYS_SETSOCKOPT, unix.SYS_SHUTDOWN, unix.SYS_SIGALTSTACK, unix.SYS_SOCKET,
	unix.SYS_SYSINFO, unix.SYS_TGKILL, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_DELETE, unix.SYS_TIMER_SETTIME, unix.SYS_UNAME,
	unix.SYS_UNLINKAT, unix.SYS_WRITE, unix.SYS_WRITEV,
}

// filtered is the first argument of this program if it is to become another, which the others name, under a filter
// that permits only systemCalls.
const filtered = "deploytest-filtered"

func init() {
	if len(os.Args) < 3 || os.Args[1] != filtered {
		return
	}
	runtime.LockOSThread() // the filter is the thread's, and that of the program that it becomes
	err := filter()
	if err == nil {
		err = syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// filter has this thread's other system calls fail with EPERM, as container runtimes do; see seccomp(2).
func filter() error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	answer := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	unless := func(value uint32) unix.SockFilter { // skips the next one unless the value is loaded
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: 1}
	}
	const number, architecture = 0, 4 // in struct seccomp_data
	program := []unix.SockFilter{load(architecture), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AUDIT_ARCH_X86_64, Jt: 1},
		answer(unix.SECCOMP_RET_KILL_PROCESS), load(number)}
	for _, call := range systemCalls {
		program = append(program, unless(call), answer(unix.SECCOMP_RET_ALLOW))
	}
	program = append(program, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM)))
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("x")); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the filter permits too much: %w", err)
	}
	return nil
}

// TestSeccomp: the program serves under a seccomp filter that is narrower than those of container runtimes.
func TestSeccomp(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints)
	script, dir := filepath.Join(t.TempDir(), "watchfan"), t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\nexec %q %s %q \"$@\"\n", os.Args[0], filtered, binary(t, "watchfan"))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := proxytest.StartWatchfan(script, dir, c.Ready.Kubeconfigs["admin"], steady.Patience, "--audit-log-path="+filepath.Join(dir, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if status := readFile(t, fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid)); !strings.Contains(status, "\nSeccomp:\t2\n") {
		t.Errorf("no filter is in force:\n%s", status)
	}
	w := &watchfan{token: c.token(t, "apps", "client"), log: p.Log, secure: p.Ports.Secure, admin: p.Ports.Admin,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
	t.Cleanup(w.client.CloseIdleConnections)
	awaitReady(t, w.admin+"/readyz")
	w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	w.watched(t, c)
	w.consistent(t, c)
	missed := regexp.MustCompile("not permitted|panic")
	for line := range strings.Lines(readFile(t, p.Log)) {
		if missed.MatchString(line) {
			t.Error(line)
		}
	}
}
