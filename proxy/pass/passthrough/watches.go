package passthrough

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Watches is the register of the open watches that are passed through. Its methods may be called
// from any goroutine. The zero value is ready for use.
type Watches struct {
	mu   sync.Mutex
	open map[*Watch]struct{}
}

// Watch is a watch that is passed through. It is immutable. What the client wrote is cut to mostKept
// bytes, and not checked.
type Watch struct {
	Why           request.Reason
	Started       time.Time
	Resource      string // as in logs: apps/v1/deployments
	Namespace     string
	Name          string
	LabelSelector string
	FieldSelector string
	User          string // name, or kind of credential in parentheses
	UserAgent     string
	Client        string // address
	TLS           bool

	lasts   time.Duration // until kube-apiserver ends it; 0 if that is unknown
	ordered bool          // it begins behind a resourceVersion, and not with initial events
	list    bool          // its client waits for the end of the initial events; see streamingLists
}

func newWatch(x *exchange.Exchange, id auth.Identity, asked *request.Request, why request.Reason) *Watch {
	target, _ := exchange.CutTarget(x.Target)
	query, _ := url.ParseQuery(target.Query) // the parameters that can be read
	seconds, _ := strconv.ParseUint(query.Get("timeoutSeconds"), 10, 31)
	return &Watch{
		Why:           why,
		Resource:      kept(request.ResourceText(asked.GVR)),
		Namespace:     kept(asked.Namespace),
		Name:          kept(asked.Name),
		LabelSelector: kept(query.Get("labelSelector")),
		FieldSelector: kept(query.Get("fieldSelector")),
		User:          kept(id.ShownName()),
		UserAgent:     kept(x.Header.Get("User-Agent")),
		Client:        x.Conn.RemoteAddr().String(),
		TLS:           x.Conn.Secure(),
		lasts:         time.Duration(seconds) * time.Second,
		ordered:       strings.Trim(query.Get("resourceVersion"), "0") != "" && !query.Has("sendInitialEvents"),
		list:          streamsList(asked.GVR, query),
	}
}

// mostKept is a little more than the pages show.
const mostKept = 512

// kept returns a copy of at most mostKept bytes of s.
func kept(s string) string { return strings.Clone(s[:min(len(s), mostKept)]) }

// began adds w to the register. The caller calls ended at the watch's end.
func (ws *Watches) began(w *Watch) (ended func()) {
	w.Started = time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.open == nil {
		ws.open = make(map[*Watch]struct{})
	}
	ws.open[w] = struct{}{}
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.open, w)
	}
}

// Open returns the open watches, in the order in which they began.
func (ws *Watches) Open() []*Watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.SortedFunc(maps.Keys(ws.open), func(a, b *Watch) int { return a.Started.Compare(b.Started) })
}
