package deadline

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

const short, long = time.Second, time.Minute

func TestDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // want `a deadline of 5s outside a bubble`
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, long)
	defer cancel()
	var c net.Conn
	_ = c.SetDeadline(time.Now().Add(short)) // want `a deadline of 1s outside a bubble`
	_ = c.SetDeadline(time.Now().Add(-short))
	_ = c.SetDeadline(time.Now().Add(long))
	ctx, cancel = context.WithDeadline(ctx, time.Unix(1, 0).Add(short))
	defer cancel()
	_ = http.Client{Timeout: short} // want `a deadline of 1s outside a bubble`
	_ = http.Client{Timeout: long}
	synctest.Test(t, func(t *testing.T) {
		_, cancel := context.WithTimeout(t.Context(), short)
		cancel()
	})
}
