package proxytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// ReservedPort returns a port of loopback that nobody else is given until the test ends. Programs that share
// their port may listen on it, because its socket does not.
func ReservedPort(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	}
	if err != nil {
		t.Fatal(err)
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(address.(*unix.SockaddrInet4).Port)
}

// FreePort returns a port of loopback on which nobody listens.
//
// It is outside of the range from which the kernel takes ports for clients. A client that dials a
// port of that range while nobody listens there can become connected to itself.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 15000 + rand.IntN(15000) //testlint:allow random two processes must not try the same ports
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port between 15000 and 30000")
	return 0
}
