package main

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReservePort: a reserved port refuses connections, nobody else gets it,
// and a child that sets SO_REUSEPORT can listen on it.
func TestReservePort(t *testing.T) {
	r, err := reservePort(0)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", r.Port)
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("connected to a port nobody listens on")
	}
	if _, err := reservePort(r.Port); err == nil {
		t.Error("reserved a port twice")
	}

	child := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		return conn.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	for range 2 { // a child can come back
		l, err := child.Listen(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	}

	if err := r.Release(); err != nil {
		t.Error(err)
	}
	again, err := reservePort(r.Port)
	if err != nil {
		t.Fatalf("released port: %v", err)
	}
	again.Release()
}
