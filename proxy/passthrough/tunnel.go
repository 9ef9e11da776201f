package passthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/exchange"
	"github.com/watchfan/watchfan/proxy/request"
)

// halfCloseGrace is how long one direction of an upgraded connection may go on after the other has
// ended.
const halfCloseGrace = 30 * time.Second

// tunnel joins the client's connection and the upgraded connection of resp. It returns when both
// directions have ended, or one has failed.
func (p *Forwarder) tunnel(to exchange.Responder, resp *http.Response) {
	defer resp.Body.Close()
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return
	}
	answer := &exchange.Response{Status: resp.StatusCode}
	addFields(&answer.Header, resp.Header)
	client, err := to.Upgrade(answer)
	if err != nil {
		return
	}
	closeBoth := func() {
		_ = up.Close()
		_ = client.Close()
	}
	defer closeBoth()
	defer context.AfterFunc(p.streams, closeBoth)()

	ended := make(chan error, 2)
	join := func(to io.Writer, from io.Reader) {
		defer request.Caught(p.log, "upgraded connection", func() { ended <- request.ErrPanicked })
		_, err := io.Copy(to, from)
		if err == nil {
			err = closeWrite(to)
		}
		ended <- err
	}
	go join(up, client)
	go join(client, up)
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
