package attack_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// holding is an attack that makes the server hold memory for its clients, or takes places that others
// need, and stays.
type holding struct {
	name      string
	stranger  bool  // no credential is needed
	watchfan  bool  // it is about a port or a cache that kube-apiserver does not have
	crowd     bool  // it is about many connections or requests; see crowdsLimit
	contained int64 // the limit is that of a control group, and no flag says it; 0 for none
	fallback  bool  // it is about a node's fall-back: first alone, and then beside the cache
	args      []string
	attack    assault
}

const (
	trickle = 5 * time.Second // how often attackers send or take a byte to be taken for slow
	openAPI = "/openapi/v2"   // the largest answer that every user may read: 2.2 MB
)

var (
	writes  = "/api/v1/namespaces/x0/configmaps?dryRun=All"
	endless = strings.Repeat("b", 1000) // byte by byte
	refused = "/api/v1/nodes"           // what strangers may not read
	oneLine = "/api/v1/namespaces/x0/configmaps/cm-1?resourceVersion=0"
	ofOne   = "/api/v1/namespaces/x0/configmaps?watch=1&resourceVersion=0"
	crawl   = allConfigMaps + "resourceVersion=0"
)

// nodeLimit and onNodes are the limit and the flags of watchfan in deploy/sidecar/daemonset.yaml, and
// fallbackLimit is the limit of its fall-back.
const nodeLimit, fallbackLimit = 256 << 20, 128 << 20

var onNodes = []string{"--idle-timeout=1m", "--history-frames=1024", "--history-bytes=4Mi"}

var holdings = []holding{
	// Answers that pass through, which are taken byte by byte.
	{name: "unread answers, HTTP/2", attack: unread(3, mallory, openAPI)},
	{name: "unread answers, HTTP/1.1", attack: held(300, sip(mallory, openAPI, 1, trickle))},
	{name: "stalled bodies of strangers, HTTP/2", stranger: true, attack: stalledBodies(49, anybody)},
	{name: "stalled bodies of strangers, HTTP/1.1", stranger: true, attack: held(256, drip(head("POST", writes, "stranger",
		fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", announced))+strings.Repeat(" ", sentFirst), endless, trickle))},
	{name: "stalled bodies of a user, HTTP/2", attack: stalledBodies(20, mallory)},
	// Heads of nearly a megabyte that do not end.
	{name: "long heads of strangers, HTTP/2", stranger: true, attack: streams{connections: 50, of: stranger, begin: func(c *h2Conn, _ int) {
		c.begin()
		for range 60 {
			c.more(fields(120, strings.Repeat("b", 125)))
		}
	}, drip: func(c *h2Conn, _ uint32) { c.more(fields(1, "b")) }, pause: trickle}.attack},
	{name: "long heads of strangers, HTTP/1.1", stranger: true, attack: held(200, drip(longHead(900_000), endless, trickle))},
	// Watches that stop within their initial events, while everything else changes; see churn.
	{name: "stopped watches of one namespace", watchfan: true, attack: stoppedWatches(mallory, ofOne)},
	{name: "stopped watches of everything", attack: stoppedWatches(crawler, crawl+"&watch=1")},
	{name: "one right in every representation", watchfan: true, attack: everyRepresentation},
	{name: "every view and form of one right", watchfan: true, attack: everyView},
	{name: "watches in views that stop", watchfan: true, attack: stoppedWatches(crawler, "/views/v1"+crawl+"&watch=1")},
	{name: "unread lists from a cache, HTTP/2", attack: unread(50, crawler, crawl)},
	{name: "unread lists from a cache, HTTP/1.1", attack: held(1000, sip(crawler, crawl, 1, trickle))},
	{name: "unread compressed lists", attack: unread(10, crawler, crawl+"&labelSelector=app!=SERIAL", "accept-encoding", "gzip")},
	{name: "unread small answers of strangers", crowd: true, attack: unread(300, stranger, refused)},
	{name: "unread small answers of a user", attack: unread(300, mallory, oneLine)},
	{name: "short heads of strangers", crowd: true, attack: held(2000, drip(longHead(60_000), endless, trickle))},
	{name: "bytes ahead of a watch", crowd: true, attack: held(2000, bytesAhead)},
	{name: "garbage tokens", stranger: true, attack: garbageTokens},
	{name: "WebSocket messages without an end", crowd: true, attack: held(200, endlessMessages)},
	// In a container, whose kernel ends a process beyond the limit.
	{name: "unread answers in a container", contained: memoryLimit, watchfan: true, attack: unread(3, mallory, openAPI)},
	{name: "unread lists in a container", contained: memoryLimit, watchfan: true, attack: unread(50, crawler, crawl)},
	// What pods of a node can do to the DaemonSet's container, which is smaller.
	{name: "unread lists in a node's container", contained: nodeLimit, watchfan: true, args: onNodes, attack: unread(50, crawler, crawl)},
	{name: "short heads in a node's container", contained: nodeLimit, watchfan: true, args: onNodes,
		attack: held(2000, drip(longHead(60_000), endless, trickle))},
	// And to the fall-back beside it, which has no cache. Its watches start at a rate that all share.
	{name: "unread answers at a node's fall-back", fallback: true, watchfan: true, attack: unread(3, mallory, openAPI)},
	{name: "stalled bodies at a node's fall-back", fallback: true, watchfan: true, attack: stalledBodies(49, anybody)},
	{name: "short heads at a node's fall-back", fallback: true, watchfan: true, attack: held(4000, drip(longHead(60_000), endless, trickle))},
	{name: "watches at a node's fall-back", fallback: true, watchfan: true, attack: unread(30, mallory, ofOne)},
	{name: "the admin port's connections", stranger: true, watchfan: true, attack: adminConnections},
}

// longHead is the beginning of a head.
func longHead(bytes int) string {
	return head("GET", "/version", "stranger", "A: "+strings.Repeat("b", bytes))
}

// unread asks for uri 100 times on each of some connections over HTTP/2, and takes one byte of each
// answer now and then. SERIAL in uri is another text each time.
func unread(connections int, of who, uri string, more ...string) assault {
	return streams{connections: connections, of: of, settings: window(1), drip: takeByte, pause: trickle, begin: func(c *h2Conn, i int) {
		for n := range streamsAllowed {
			c.ask("GET", strings.Replace(uri, "SERIAL", fmt.Sprintf("%d-%d", i, n), 1), true, more...)
		}
	}}.attack
}

// stoppedWatches opens another connection over HTTP/2 with 20 watches each second.
func stoppedWatches(of who, uri string) assault {
	stopped := streams{connections: 1, of: of, settings: window(1), drip: takeByte, pause: trickle, begin: func(c *h2Conn, _ int) {
		for range 20 {
			c.ask("GET", uri, true)
		}
	}}
	return func(ctx context.Context, a *attacker) {
		var all sync.WaitGroup
		defer all.Wait()
		for proxytest.Sleep(ctx, time.Second) {
			all.Go(func() { stopped.attack(ctx, a) })
		}
	}
}

const (
	announced = 65_536 // bytes of a body
	sentFirst = 65_500 // of them, at once
)

// stalledBodies begins 100 writes on each of some connections over HTTP/2, sends nearly the whole bodies,
// and then a byte of each now and then.
func stalledBodies(connections int, of who) assault {
	return streams{connections: connections, of: of, pause: trickle, begin: func(c *h2Conn, _ int) {
		for range streamsAllowed {
			id := c.ask("POST", writes, false, "content-type", "application/json", "content-length", strconv.Itoa(announced))
			c.body(id, sentFirst, time.Second)
		}
	}, drip: func(c *h2Conn, id uint32) { c.body(id, 1, 0) }}.attack
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
	c := a.client(mallory(a))
	defer c.close()
	crowd(len(forms), func(i int) {
		for ctx.Err() == nil {
			for _, resource := range []string{"configmaps", "pods", "secrets"} {
				for _, more := range []string{"", "&watch=1&timeoutSeconds=1", "&drop=managedFields"} {
					a.ask(ctx, c, request{uri: "/api/v1/namespaces/x0/" + resource + "?resourceVersion=0" + more, accept: forms[i]}, patient)
				}
			}
		}
	})
}

// bytesAhead send 60 KB behind each of many watches.
func bytesAhead(ctx context.Context, a *attacker, conn net.Conn) error {
	err := send(conn, head("GET", ofOne+"&fieldSelector=metadata.name=none", mallory(a), "\r\n"))
	if err == nil {
		_, err = conn.Read(make([]byte, 1000)) // the watch has begun
	}
	if err == nil {
		err = send(conn, "GET /"+strings.Repeat("b", 60_000))
	}
	if err == nil {
		err = take(ctx, conn, 1, trickle)
	}
	return err
}

// garbageTokens sends requests with new tokens as fast as 20 clients are answered.
func garbageTokens(ctx context.Context, a *attacker) {
	crowd(20, func(int) {
		for ctx.Err() == nil {
			c := a.client(anybody(a))
			for n := 0; n < 10 && ctx.Err() == nil; n++ {
				a.ask(ctx, c, request{uri: refused}, patient)
			}
			c.close()
		}
	})
}

// adminConnections take 256 connections to the admin port, in four ways: with nothing, with half a
// head, with requests whose answers are not read, and idle after an answer.
func adminConnections(ctx context.Context, a *attacker) {
	ways := []string{"", "GET /metrics HTTP/1.1\r\nHost: ", strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 20),
		"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"}
	crowd(len(ways), func(i int) {
		a.hold(ctx, 64, a.Admin, "", func(ctx context.Context, _ *attacker, conn net.Conn) error {
			_ = send(conn, ways[i]) // take says how it ends
			return take(ctx, conn, 1, trickle)
		})
	})
}
