package attack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// holding is an attack that makes the server hold memory for its clients, or takes places that others
// need, and stays.
type holding struct {
	name     string
	stranger bool // no credential is needed
	watchfan bool // it is about a port or a cache that kube-apiserver does not have
	crowd    bool // it is about many connections or requests; see crowdsLimit
	attack   func(ctx context.Context, a *attacker)
}

// trickle is how often attackers send or take a byte to be taken for slow.
const trickle = 5 * time.Second

var holdings = []holding{
	{name: "unread answers, HTTP/2", attack: unreadStreams},
	{name: "unread answers, HTTP/1.1", attack: unreadConnections},
	{name: "stalled bodies of strangers, HTTP/2", stranger: true, attack: stalledStreams},
	{name: "stalled bodies of strangers, HTTP/1.1", stranger: true, attack: stalledConnections},
	{name: "stalled bodies of a user, HTTP/2", attack: stalledUserStreams},
	{name: "long heads of strangers, HTTP/2", stranger: true, attack: heldHeads},
	{name: "long heads of strangers, HTTP/1.1", stranger: true, attack: heldHeadConnections},
	{name: "stopped watches of one namespace", watchfan: true, attack: stoppedWatches},
	{name: "stopped watches of everything", attack: stoppedCrawls},
	{name: "one right in every representation", watchfan: true, attack: everyRepresentation},
	{name: "unread lists from a cache, HTTP/2", attack: unreadLists},
	{name: "unread lists from a cache, HTTP/1.1", attack: unreadListConnections},
	{name: "unread compressed lists", attack: unreadCompressed},
	{name: "unread small answers of strangers", crowd: true, attack: unreadRefusals},
	{name: "unread small answers of a user", attack: unreadGets},
	{name: "short heads of strangers", crowd: true, attack: shortHeads},
	{name: "bytes ahead of a watch", crowd: true, attack: bytesAhead},
	{name: "garbage tokens", stranger: true, attack: garbageTokens},
	{name: "the admin port's connections", stranger: true, watchfan: true, attack: adminConnections},
}

// openAPI is the largest answer that every user may read: 2.2 MB.
const openAPI = "/openapi/v2"

// unreadStreams ask for long answers that pass through, 100 on each of three connections, and take
// one byte of each now and then.
func unreadStreams(ctx context.Context, a *attacker) {
	a.crowd(3, func(int) {
		settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}
		a.staying(ctx, a.Hostile.Tenants[0], settings, func(c *h2Conn) (err error) {
			for range streamsAllowed {
				_, wrong := c.ask("GET", openAPI, true)
				err = errors.Join(err, wrong)
			}
			return err
		}, func(c *h2Conn, id uint32) error { return c.WriteWindowUpdate(id, 1) })
	})
}

// unreadConnections do the same over HTTP/1.1.
func unreadConnections(ctx context.Context, a *attacker) {
	a.holdAgain(ctx, 300, func(ctx context.Context, conn net.Conn) error {
		if err := send(conn, head("GET", openAPI, a.Hostile.Tenants[0], "\r\n")); err != nil {
			return err
		}
		return sip(ctx, conn)
	})
}

// sip takes a byte now and then until the server ends the connection.
func sip(ctx context.Context, conn net.Conn) error {
	for proxytest.Sleep(ctx, trickle) {
		_ = conn.SetReadDeadline(time.Now().Add(trickle))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
			return err
		}
	}
	return nil
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

const (
	announced = 65_536 // bytes of a body
	sentFirst = 65_500 // of them, at once
)

// stalledStreams begin 100 writes on each of 49 connections, send nearly the whole bodies, and then a
// byte of each now and then.
func stalledStreams(ctx context.Context, a *attacker) {
	a.stallBodies(ctx, 49, func(i int) string { return fmt.Sprintf("stranger-%d", i) })
}

func stalledUserStreams(ctx context.Context, a *attacker) {
	a.stallBodies(ctx, 20, func(int) string { return a.Hostile.Tenants[0] })
}

func (a *attacker) stallBodies(ctx context.Context, connections int, token func(i int) string) {
	a.crowd(connections, func(i int) {
		a.staying(ctx, token(i), nil, func(c *h2Conn) (err error) {
			for range streamsAllowed {
				id := c.next
				c.next += 2
				block := c.encode("POST", "/api/v1/namespaces/x0/configmaps?dryRun=All", "content-type", "application/json",
					"content-length", fmt.Sprint(announced))
				err = errors.Join(err, c.head(id, block, false, true))
				err = errors.Join(err, c.body(ctx, id, sentFirst, time.Second))
			}
			return err
		}, func(c *h2Conn, id uint32) error { return c.body(ctx, id, 1, 0) })
	})
}

// stalledConnections do the same over HTTP/1.1.
func stalledConnections(ctx context.Context, a *attacker) {
	lines := fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", announced)
	a.holdAgain(ctx, 256, func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, head("POST", "/api/v1/namespaces/x0/configmaps", "stranger", lines)+strings.Repeat(" ", sentFirst), " ")
	})
}

// drip sends what is first, and then a byte now and then until the server ends the connection.
func drip(ctx context.Context, conn net.Conn, first, b string) error {
	err := send(conn, first)
	for err == nil && proxytest.Sleep(ctx, trickle) {
		err = send(conn, b)
	}
	return err
}

// send sends text unless the server does not read.
func send(conn net.Conn, text string) error {
	_ = conn.SetWriteDeadline(time.Now().Add(trickle))
	_, err := io.WriteString(conn, text)
	return err
}

// heldHeads begin a head of nearly a megabyte on each of 50 connections, and do not end it.
func heldHeads(ctx context.Context, a *attacker) {
	fragment := []byte(strings.Repeat("\x00\x01a\x7f\x80\x07"+strings.Repeat("b", 1023), 15)) // literal fields that no table keeps
	a.crowd(50, func(int) {
		a.staying(ctx, "stranger", nil, func(c *h2Conn) error {
			err := c.head(1, c.encode("GET", "/version"), true, false)
			for range 60 {
				err = errors.Join(err, c.WriteContinuation(1, false, fragment))
			}
			return err
		}, func(c *h2Conn, _ uint32) error { return c.WriteContinuation(1, false, []byte("\x00\x01a\x01b")) })
	})
}

// heldHeadConnections do the same over HTTP/1.1.
func heldHeadConnections(ctx context.Context, a *attacker) {
	a.holdAgain(ctx, 200, func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, head("GET", "/version", "stranger", "A: "+strings.Repeat("b", 900_000)), "b")
	})
}

// stoppedWatches begin with the attacker's own namespace and stop within its objects. Everything else
// changes meanwhile; see churn.
func stoppedWatches(ctx context.Context, a *attacker) {
	a.stopWatches(ctx, a.Hostile.Tenants[0], "/api/v1/namespaces/x0/configmaps?watch=1&resourceVersion=0")
}

func stoppedCrawls(ctx context.Context, a *attacker) {
	a.stopWatches(ctx, a.Hostile.Crawler, allConfigMaps+"watch=1&resourceVersion=0")
}

// stopWatches opens another connection with 20 such watches each second.
func (a *attacker) stopWatches(ctx context.Context, token, uri string) {
	settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}
	var all sync.WaitGroup
	defer all.Wait()
	for proxytest.Sleep(ctx, time.Second) {
		all.Go(func() {
			a.staying(ctx, token, settings, func(c *h2Conn) (err error) {
				for range 20 {
					_, wrong := c.ask("GET", uri, true)
					err = errors.Join(err, wrong)
				}
				return err
			}, func(c *h2Conn, id uint32) error { return c.WriteWindowUpdate(id, 1) })
		})
	}
}

// everyRepresentation lists the attacker's own objects in every form that there is.
func everyRepresentation(ctx context.Context, a *attacker) {
	forms := []string{"application/json", protobufType, "application/cbor"}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, form := range forms[:3] {
			for _, kind := range []string{"PartialObjectMetadataList", "PartialObjectMetadata"} {
				forms = append(forms, form+";as="+kind+";g=meta.k8s.io;v="+version)
			}
		}
	}
	c := a.mallory()
	defer c.close()
	a.crowd(len(forms), func(i int) {
		for ctx.Err() == nil {
			for _, resource := range []string{"configmaps", "pods", "secrets"} {
				for _, more := range []string{"", "&watch=1&timeoutSeconds=1", "&drop=managedFields"} {
					a.ask(ctx, c, request{uri: "/api/v1/namespaces/x0/" + resource + "?resourceVersion=0" + more, accept: forms[i]}, 20*time.Second)
				}
			}
		}
	})
}

// unreadLists ask for everything that a cache has, 100 times on each of 50 connections, and take one
// byte of each now and then.
func unreadLists(ctx context.Context, a *attacker) {
	a.unread(ctx, 50, a.Hostile.Crawler, func(int, int) string { return allConfigMaps + "resourceVersion=0" })
}

// unreadCompressed do the same in gzip, each with a selector of its own.
func unreadCompressed(ctx context.Context, a *attacker) {
	a.unread(ctx, 10, a.Hostile.Crawler, func(i, n int) string {
		return fmt.Sprintf("%sresourceVersion=0&labelSelector=app!=z%d-%d", allConfigMaps, i, n)
	}, "accept-encoding", "gzip")
}

// unreadRefusals ask for what strangers may not read.
func unreadRefusals(ctx context.Context, a *attacker) {
	a.unread(ctx, 300, "stranger", func(int, int) string { return "/api/v1/nodes" })
}

// unreadGets ask for one object from a cache.
func unreadGets(ctx context.Context, a *attacker) {
	a.unread(ctx, 300, a.Hostile.Tenants[0], func(int, int) string { return "/api/v1/namespaces/x0/configmaps/cm-1?resourceVersion=0" })
}

// unread sends 100 requests on each of some connections, and takes one byte of each answer now and then.
func (a *attacker) unread(ctx context.Context, connections int, token string, uri func(i, n int) string, more ...string) {
	a.crowd(connections, func(i int) {
		settings := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}
		a.staying(ctx, token, settings, func(c *h2Conn) (err error) {
			for n := range streamsAllowed {
				err = errors.Join(err, c.head(c.next, c.encode("GET", uri(i, n), more...), true, true))
				c.next += 2
			}
			return err
		}, func(c *h2Conn, id uint32) error { return c.WriteWindowUpdate(id, 1) })
	})
}

// unreadListConnections read nothing of a list.
func unreadListConnections(ctx context.Context, a *attacker) {
	a.holdAgain(ctx, 1000, func(ctx context.Context, conn net.Conn) error {
		if err := send(conn, head("GET", allConfigMaps+"resourceVersion=0", a.Hostile.Crawler, "\r\n")); err != nil {
			return err
		}
		return sip(ctx, conn)
	})
}

// shortHeads begin heads of 60 KB.
func shortHeads(ctx context.Context, a *attacker) {
	a.holdAgain(ctx, 2000, func(ctx context.Context, conn net.Conn) error {
		return drip(ctx, conn, head("GET", "/version", "stranger", "A: "+strings.Repeat("b", 60_000)), "b")
	})
}

// bytesAhead send 60 KB behind each of many watches.
func bytesAhead(ctx context.Context, a *attacker) {
	a.holdAgain(ctx, 2000, func(ctx context.Context, conn net.Conn) error {
		watch := head("GET", "/api/v1/namespaces/x0/configmaps?watch=1&resourceVersion=0&fieldSelector=metadata.name=none", a.Hostile.Tenants[0], "\r\n")
		if err := send(conn, watch); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 1000)); err != nil { // the watch has begun
			return err
		}
		if err := send(conn, "GET /"+strings.Repeat("b", 60_000)); err != nil {
			return err
		}
		return sip(ctx, conn)
	})
}

// garbageTokens send requests with new tokens as fast as 20 clients are answered.
func garbageTokens(ctx context.Context, a *attacker) {
	a.crowd(20, func(i int) {
		for n := 0; ctx.Err() == nil; n++ {
			c := a.client(fmt.Sprintf("garbage-%d-%d", i, n))
			for range 10 {
				if ctx.Err() == nil {
					a.ask(ctx, c, request{uri: "/api/v1/nodes"}, 20*time.Second)
				}
			}
			c.close()
		}
	})
}

// adminConnections take 256 connections to the admin port, in four ways: with nothing, with half a
// head, with a request whose answer is not read, and idle after an answer.
func adminConnections(ctx context.Context, a *attacker) {
	elsewhere := net.Dialer{LocalAddr: &net.TCPAddr{IP: a.from}}
	a.crowd(256, func(i int) {
		for ctx.Err() == nil {
			conn, err := elsewhere.DialContext(ctx, "tcp", a.Admin)
			if err != nil {
				a.note(ending(err))
				proxytest.Sleep(ctx, 100*time.Millisecond)
				continue
			}
			a.note("open")
			_, _ = io.WriteString(conn, []string{"", "GET /metrics HTTP/1.1\r\nHost: ", strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 20),
				"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"}[i%4])
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			for ctx.Err() == nil {
				_ = conn.SetReadDeadline(time.Now().Add(trickle))
				if _, err := conn.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
					a.note(ending(err))
					break
				}
				proxytest.Sleep(ctx, trickle)
			}
			stop()
			conn.Close()
			proxytest.Sleep(ctx, 100*time.Millisecond)
		}
	})
}

// staying opens a connection, lets begin open its streams, and then calls drip for each of them now
// and then. When the server ends the connection, it begins again.
func (a *attacker) staying(ctx context.Context, token string, settings []http2.Setting, begin func(*h2Conn) error,
	drip func(c *h2Conn, id uint32) error) {
	for ctx.Err() == nil {
		a.onHTTP2(ctx, token, false, settings, func(c *h2Conn) error {
			err := errors.Join(begin(c), c.flush())
			for err == nil && proxytest.Sleep(ctx, trickle) {
				for id := uint32(1); id < c.next; id += 2 {
					err = errors.Join(err, drip(c, id))
				}
				err = errors.Join(err, c.flush())
			}
			return err
		})
		proxytest.Sleep(ctx, 100*time.Millisecond)
	}
}

// holdAgain keeps n connections over TLS. A connection that f gives up, or that the server has ended,
// is opened again.
func (a *attacker) holdAgain(ctx context.Context, n int, f func(context.Context, net.Conn) error) {
	a.crowd(n, func(int) {
		for ctx.Err() == nil {
			conn, err := a.dial(ctx, a.Secure, true)
			if err == nil {
				a.note("open")
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				err = f(ctx, conn)
				stop()
				conn.Close()
			}
			if err != nil && ctx.Err() == nil {
				a.note(ending(err))
				proxytest.Sleep(ctx, 100*time.Millisecond)
			}
		}
	})
}

// answered is whether an honest request was served.
func answered(code int) bool { return code >= 200 && code < 300 || code == http.StatusConflict }
