package proxytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

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
