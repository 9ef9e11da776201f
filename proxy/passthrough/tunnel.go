package passthrough

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/request"
)

// halfCloseGrace is how long the other direction of an upgraded connection may go on once one has
// ended.
const halfCloseGrace = 30 * time.Second

// tunnel joins the client's connection and the upgraded one of resp until both directions have
// ended, or one has failed.
func (p *Forwarder) tunnel(h *downstream.Hijacked, resp *http.Response) {
	h.StopRead()
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		_ = resp.Body.Close()
		return
	}
	closeBoth := func() {
		_ = up.Close()
		h.Close()
	}
	defer closeBoth()
	defer context.AfterFunc(p.streams, closeBoth)()

	c := h.Conn()
	head := bytes.NewBufferString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = resp.Header.Write(head)
	head.WriteString("\r\n")
	_ = c.SetWriteDeadline(time.Now().Add(downstream.StallTimeout))
	if _, err := c.Write(head.Bytes()); err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Time{})

	ended := make(chan error, 2)
	join := func(to io.Writer, from io.Reader) {
		defer request.Caught(p.log, "upgraded connection", func() { ended <- request.ErrPanicked })
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		ended <- err
	}
	go join(up, h)
	go join(c, up)
	if err := <-ended; err == nil {
		grace := time.NewTimer(halfCloseGrace)
		defer grace.Stop()
		select {
		case <-ended:
			return
		case <-grace.C:
		}
	}
	closeBoth()
	<-ended
}

func closeWrite(w io.Writer) error {
	if c, ok := w.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}
