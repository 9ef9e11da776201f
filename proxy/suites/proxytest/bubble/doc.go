// Package bubble runs a whole proxy in virtual time, within a bubble of testing/synctest: everything
// but the protocols and the sockets. Only tests import it.
//
//	synctest.Test(t, func(t *testing.T) {
//		p := bubble.Start(t, proxytest.NewBubbleServer(t))
//		w := p.Watch(bubble.AnyState)
//		p.CMs.Put("ns", "a", "1")
//		...
//	})
//
// The scripted kube-apiserver is behind pipes ([proxytest.Pipes]), so requests to it are real HTTP.
// Clients have no connections: a request is an exchange, which [Proxy.Send] hands to the server as
// http1 and http2 do, and the events of a watch go to a sink in memory, as messages if it is over a
// WebSocket. A client that does not read is one that has called [Client.Stall].
//
// In a bubble a wait that is in vain fails at once, and "nothing has come" is exact: time passes only
// while everything waits. [synctest.Wait] returns when all that could happen now has happened.
// Whatever waits for a mutex keeps time from passing, so a test must not sleep with a lock held.
package bubble
