package fairness

import (
	"hash/maphash"
	"net"

	"github.com/watchfan/watchfan/proxy/auth"
)

// Flow tells users apart. Each token is a user: kube-apiserver is not asked for its owner, and the
// many pods of a DaemonSet, which share an account, reconnect together. On the insecure port, where
// all clients are the proxy itself, each connection is a user. Of anonymous clients, each address
// is a user.
type Flow struct {
	kind auth.Kind
	name string
	hash uint64 // of a token, or the port of a connection
}

var flowSeed = maphash.MakeSeed()

// FlowOf returns the Flow of a request of id that comes from an address.
func FlowOf(id auth.Identity, from net.Addr) Flow {
	switch {
	case id.User != nil:
		return Flow{name: id.User.Name, kind: auth.KindCertificate} // a front proxy's user too
	case id.Kind == auth.KindAnonymous:
		return Flow{kind: auth.KindAnonymous, name: id.From.String()}
	case id.Kind == auth.KindToken:
		return Flow{kind: auth.KindToken, hash: maphash.String(flowSeed, id.Token)}
	}
	f := Flow{kind: id.Kind}
	if tcp, ok := from.(*net.TCPAddr); ok {
		f.hash = uint64(tcp.Port)
	}
	return f
}
