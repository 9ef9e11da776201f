package diagnose

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// WatcherList answers /debug/watchers.
type WatcherList struct {
	Total    int                    `json:"total"`    // watches that are served from caches
	Matching int                    `json:"matching"` // watches that match the query
	Reasons  map[watchers.Cause]int `json:"reasons"`  // how many of these have each cause
	Watchers []WatcherStatus        `json:"watchers"` // the first of these
	Slow     []SlowCause            `json:"slow"`     // those of the causes for which a watch is slow, worst first
	Passed   PassedList             `json:"passedThrough"`
}

// SlowCause is a cause for which watches are slow now, and how many of those that match the query
// have it.
type SlowCause struct {
	Reason  watchers.Cause `json:"reason"`
	Meaning string         `json:"meaning"` // in a few words
	Watches int            `json:"watches"`
}

func slowCauses(counts map[watchers.Cause]int) []SlowCause {
	slow := []SlowCause{}
	for _, c := range watchers.Causes {
		if n := counts[c]; n > 0 && c.Slow() {
			slow = append(slow, SlowCause{c, c.Meaning(), n})
		}
	}
	return slow
}

// Asker is the client of a watch, and what it asks for.
type Asker struct {
	User          string `json:"user"` // name, or kind of credential in parentheses
	UserAgent     string `json:"userAgent"`
	Client        string `json:"client"`           // address
	Stream        uint32 `json:"stream,omitempty"` // of an HTTP/2 connection
	Resource      string `json:"resource"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	ShardSelector string `json:"shardSelector,omitempty"`
}

// WatcherStatus is one watch: its client, its scope and its progress. It holds nothing of any object
// and no credentials.
type WatcherStatus struct {
	ID uint64 `json:"id"`
	Asker
	Protocol string `json:"protocol"` // HTTP/1.1, HTTP/2 or WebSocket
	Encoding string `json:"encoding"`
	View     string `json:"view,omitempty"`
	Lean     bool   `json:"lean"` // without metadata.managedFields
	Gzip     bool   `json:"gzip"`
	TLS      bool   `json:"tls"`

	Started    time.Time          `json:"started"`
	Deadline   time.Time          `json:"deadline"`
	AgeSeconds downstream.Seconds `json:"ageSeconds"`

	State       string    `json:"state"` // InitialEvents, Replaying, Live, Parked, Ending or Unknown
	ParkedSince time.Time `json:"parkedSince,omitzero"`
	Parks       int       `json:"parks"`

	// What has been written to the client: events and bookmarks, their bytes without TLS, and the
	// last event's resourceVersion.
	Events          uint64 `json:"events"`
	Bytes           uint64 `json:"bytes"`
	ResourceVersion string `json:"resourceVersion"`

	// What waits for the socket, and how long the oldest change has waited.
	LagEvents  uint64             `json:"lagEvents"`
	LagBytes   uint64             `json:"lagBytes"`
	LagSeconds downstream.Seconds `json:"lagSeconds"`
	// QueuedBytes are in the socket. The client's side has not acknowledged them.
	QueuedBytes uint32 `json:"queuedBytes"`

	Reason watchers.Cause `json:"reason"`

	// Only in answers about one watch.
	Verdict *watchers.Verdict   `json:"verdict,omitempty"`
	TCP     *downstream.TCPInfo `json:"tcp,omitempty"`
}

func askerOf(w *watchers.Watcher) Asker {
	scope := w.Scope.Value()
	a := Asker{
		User:          w.User.Value(),
		UserAgent:     w.UserAgent.Value(),
		Client:        w.Conn.RemoteAddr().String(),
		Resource:      w.Lane.Resource(),
		Namespace:     scope.Namespace,
		Name:          scope.Name,
		LabelSelector: scope.Labels,
		FieldSelector: scope.Fields,
		ShardSelector: scope.Shard,
	}
	if stream, ok := w.Conn.(exchange.StreamConn); ok {
		a.Stream = stream.StreamID()
	}
	return a
}

func (w watched) status() WatcherStatus {
	st, started := &w.e.State, w.w.Started.Time()
	status := WatcherStatus{
		ID:              w.w.ID,
		Asker:           askerOf(w.w),
		Protocol:        w.w.Protocol.String(),
		Encoding:        w.w.Lane.Representation.String(),
		View:            w.w.Scope.Value().View,
		Lean:            w.w.Sub.Lean(),
		Gzip:            w.w.Gzip,
		TLS:             w.w.TLS,
		Started:         lane.ShownAt(w.e.Now, started),
		Deadline:        lane.ShownAt(w.e.Now, w.w.Sub.Deadline()),
		AgeSeconds:      downstream.InSeconds(w.e.Now.Sub(started)),
		State:           stateName(st),
		Parks:           st.Parks,
		Events:          st.Events,
		Bytes:           st.Bytes,
		ResourceVersion: strconv.FormatUint(st.ResourceVersion, 10),
		LagEvents:       st.LagEvents,
		LagBytes:        st.LagBytes,
		LagSeconds:      downstream.InSeconds(w.e.Lag()),
		QueuedBytes:     w.e.Queued(),
		Reason:          w.why,
	}
	if !st.ParkedSince.IsZero() {
		status.ParkedSince = lane.ShownAt(w.e.Now, st.ParkedSince)
	}
	return status
}

// Selector is the watch's namespace, name and selectors, written as kubectl's arguments.
func (a *Asker) Selector() string {
	var parts []string
	for _, p := range []struct{ flag, value string }{
		{"-n ", a.Namespace}, {"", a.Name}, {"-l ", a.LabelSelector}, {"--field-selector ", a.FieldSelector},
	} {
		if p.value != "" {
			parts = append(parts, p.flag+p.value)
		}
	}
	return strings.Join(parts, " ")
}

// Counts lists how many watches have each cause, worst first.
func (l *WatcherList) Counts() string {
	var parts []string
	for _, c := range watchers.Causes {
		if n := l.Reasons[c]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c))
		}
	}
	return strings.Join(parts, ", ")
}

func (l *WatcherList) writeText(w io.Writer) {
	fmt.Fprintf(w, "%d watches, %d matching, %d shown: %s\n\n", l.Total, l.Matching, len(l.Watchers), l.Counts())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tREASON\tSTATE\tLAG\tOLDEST\tQUEUED\tAGE\tRESOURCE\tUSER AGENT\tUSER\tSELECTOR\tCLIENT\t"+
		"ENCODING\tLAG BYTES\tEVENTS\tBYTES\tRESOURCE VERSION\tPARKS")
	for i := range l.Watchers {
		s := &l.Watchers[i]
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%d\n",
			s.ID, s.Reason, s.State, s.LagEvents, watchers.Short(s.LagSeconds.Duration()), s.QueuedBytes, watchers.Short(s.AgeSeconds.Duration()),
			s.Resource, s.UserAgent, s.User, s.Selector(), s.at(), s.wire(),
			s.LagBytes, s.Events, s.Bytes, s.ResourceVersion, s.Parks)
	}
	_ = table.Flush() // writes to memory
	l.Passed.writeText(w)
}

// at says where the client is: its address, and the stream of an HTTP/2 connection.
func (s *WatcherStatus) at() string {
	if s.Stream == 0 {
		return s.Client
	}
	return fmt.Sprintf("%s/%d", s.Client, s.Stream)
}

func (s *WatcherStatus) wire() string {
	how := s.Encoding
	if s.View != "" {
		how += "+view:" + s.View
	} else if s.Lean {
		how += "+lean"
	}
	if s.Gzip {
		how += "+gzip"
	}
	if s.TLS {
		how += "+tls"
	}
	switch s.Protocol {
	case watchers.OverHTTP2.String():
		how += "+h2"
	case watchers.OverWebSocket.String():
		how += "+websocket"
	}
	return how
}

func (s *WatcherStatus) writeText(w io.Writer) {
	fmt.Fprintf(w, "Watch %d: %s\n\n%s\n\n%s\n\n", s.ID, s.Reason, s.Verdict.Message, s.Verdict.Advice)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(table, name+"\t"+format+"\n", args...) }
	line("resource", "%s %s", s.Resource, s.Selector())
	line("user", "%s", s.User)
	line("user agent", "%s", s.UserAgent)
	line("client", "%s, %s", s.at(), s.wire())
	line("age", "%s, started %s, ends %s",
		watchers.Short(s.AgeSeconds.Duration()), s.Started.Format(time.RFC3339), s.Deadline.Format(time.RFC3339))
	line("state", "%s, parked %d times", s.State, s.Parks)
	line("sent", "%d events, %d bytes, resourceVersion %s", s.Events, s.Bytes, s.ResourceVersion)
	line("lag", "%d events, %d bytes, the oldest waits for %s", s.LagEvents, s.LagBytes, watchers.Short(s.LagSeconds.Duration()))
	if t := s.TCP; t != nil {
		line("socket", "%d bytes queued, %d of them not sent yet, %d segments sent and not acknowledged, window %d bytes",
			t.QueuedBytes, t.UnsentBytes, t.UnackedSegments, t.WindowBytes)
		line("network", "round trip %s, %d of %d segments sent again, %d timeouts in a row, last acknowledgement %s ago",
			watchers.Short(t.RTT.Duration()), t.ResentSegments, t.SentSegments, t.Timeouts, watchers.Short(t.SinceAck.Duration()))
	}
	_ = table.Flush() // writes to memory
}
