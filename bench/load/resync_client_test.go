package load

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestSyncers: a plain stream is complete at its end bookmark, and a compressed one when it is silent.
// A client that does not get everything fails the case with the reason. Clients over sockets are those
// of TestScaleRequests.
func TestSyncers(t *testing.T) {
	const objects, pause = 300, 10 * time.Millisecond
	f := func(name, head string, body []byte, want string) {
		gzip := strings.Contains(head, "gzip")
		if gzip {
			name, body = name+", compressed", flushed(t, body)
		}
		stream := fmt.Appendf([]byte(head), "\r\n\r\n%x\r\n%s\r\n", len(body), body)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Syncers{all: []*syncer{{objects: objects, keep: true}, {objects: objects}}, start: time.Now()}
				var err error
				if s.reader, err = newReader(NewAcks()); err != nil {
					t.Fatal(err)
				}
				defer unix.Close(s.reader.epoll)
				pieces := 0
				go func() {
					for p := stream; len(p) > 0; p = p[min(len(p), 1000):] {
						time.Sleep(pause)
						s.reader.mu.Lock()
						s.reader.now = s.reader.acks.now()
						pieces++
						for _, c := range s.all {
							if err := c.take(p[:min(len(p), 1000)], &s.reader.tally); err != nil {
								s.reader.lose(err)
							}
						}
						s.reader.mu.Unlock()
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				progress := 0
				took, err := s.await(ctx, func() error { progress++; return nil })
				if err == nil {
					err = s.check()
				}
				switch {
				case want != "":
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
					if err := s.check(); err == nil { // also after an error of await
						t.Error("everything has come")
					}
				case err != nil || s.Compressed() != gzip || progress == 0 || took != time.Duration(pieces)*pause ||
					s.Bytes() != uint64(2*len(stream)):
					t.Errorf("got %v after %v, compressed %t, %d bytes", err, took, s.Compressed(), s.Bytes())
				}
			})
		})
	}
	const plain = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
	const gzip = plain + "\r\nContent-Encoding: gzip"
	for _, head := range []string{plain, gzip} {
		f("all", head, initialEvents(objects, true), "")
		f("too few", head, initialEvents(objects-1, true), "299 objects came, want 300")
	}
	f("no end", plain, initialEvents(objects, false), "0 of 2 clients done after 1m0s")
	f("no end", gzip, initialEvents(objects, false), "no end bookmark; 300 objects came")
	f("refused", "HTTP/1.1 429 Too Many Requests\r\nTransfer-Encoding: chunked", nil, "429 Too Many Requests")
	f("endless head", "HTTP/1.1 200 OK\r\nX: "+string(bytes.Repeat([]byte("x"), 17<<10)), nil, "more than 16 KiB")
	f("no chunks", "HTTP/1.1 200 OK\r\nContent-Length: 1", nil, "want 200, chunked")
}
