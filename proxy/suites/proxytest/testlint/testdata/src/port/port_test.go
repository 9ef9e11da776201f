package port

import (
	"net"
	"testing"
)

func FreePort() string { return "" }

func TestPort(t *testing.T) {
	_, _ = net.Listen("tcp", FreePort())       // want `a free port may be taken`
	_, _ = net.Listen("tcp", "127.0.0.1:8001") // want `a fixed port`
	_, _ = net.Listen("tcp", ":8001")          // want `a fixed port`
	_, _ = net.Listen("tcp", "127.0.0.1:0")
	t.Log("127.0.0.1:8001")
}
