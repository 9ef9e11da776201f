package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/bench/load"
)

// A floorJob is the task of a floor.
type floorJob struct {
	Objects   int    // in the list
	EventSize int    // bytes of one watch event
	Streams   int    // watches on each HTTP/2 connection; 0 is HTTP/1.1
	Cert, Key []byte // a certificate and its private key, for TLS, in PEM; nil is plaintext
}

// RunFloorServer is `bench writev`: see floor. Its state is its address.
func RunFloorServer(input io.Reader, states io.Writer) error {
	var job floorJob
	orders := bufio.NewReader(input)
	if err := load.ReadJob(orders, &job); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	s, err := newFloorServer(job)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go s.accept(listener)
	if _, err := fmt.Fprintf(states, "%q\n", listener.Addr()); err != nil {
		return err
	}
	return s.serve(orders)
}

// A floorServer writes the same events to all its watchers, one after the other, on one processor.
type floorServer struct {
	floorJob
	event  []byte      // with its number's ten digits
	digits int         // their offset
	tls    *tls.Config // nil is plaintext

	mu       sync.Mutex // held while an order is carried out, and while a client is answered
	watchers map[*floorWatcher]bool

	chunks []byte       // the events of the order, as chunks of HTTP/1.1
	chunk  net.Buffers  // each of them
	vector net.Buffers  // the same, for one watcher
	frames bytes.Buffer // the events for all streams of an HTTP/2 connection
}

// newFloorServer returns a server of events that have the size of a job, or the smallest possible one.
func newFloorServer(job floorJob) (*floorServer, error) {
	const number = "0123456789"
	event := func(pad int) string {
		return `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1",` +
			`"metadata":{"name":"object","namespace":"bench","annotations":{` + load.SeqMark + number + `"}},` +
			`"data":{"pad":"` + strings.Repeat("x", pad) + `"}}}` + "\n"
	}
	text := event(max(job.EventSize-len(event(0)), 0))
	s := &floorServer{floorJob: job, event: []byte(text), digits: strings.Index(text, number)}
	s.watchers = make(map[*floorWatcher]bool)
	if job.Cert == nil {
		return s, nil
	}
	pair, err := tls.X509KeyPair(job.Cert, job.Key)
	// Lists come over HTTP/1.1, from clients that offer both.
	protocols := []string{"http/1.1", "h2"}
	s.tls = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: protocols, DynamicRecordSizingDisabled: true}
	return s, err
}

// A floorWatcher is a connection whose watches have been answered.
type floorWatcher struct {
	net.Conn           // TCP, or TLS over below
	below    *gathered // nil in plaintext
	h2       bool      // it has as many watches as the job says
}

// A gathered connection is below TLS. Once it gathers, it keeps what TLS writes, for one write to the socket.
type gathered struct {
	net.Conn
	gathering bool
	held      []byte
}

func (g *gathered) Write(p []byte) (int, error) {
	if !g.gathering {
		return g.Conn.Write(p)
	}
	g.held = append(g.held, p...)
	return len(p), nil
}

// An order is the number of the first event, and how many there are.
type order [2]uint64

func (s *floorServer) serve(orders io.Reader) error {
	for {
		var o order
		if err := binary.Read(orders, binary.NativeEndian, &o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		s.deliver(o)
	}
}

// deliver writes the events of an order to each watcher. A watcher that cannot be written to is closed.
func (s *floorServer) deliver(o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head := fmt.Sprintf("%x\r\n", len(s.event))
	s.chunks = s.chunks[:0]
	s.frames.Reset()
	for i := range o[1] {
		copy(s.event[s.digits:], fmt.Sprintf("%010d", o[0]+i))
		s.chunks = append(append(append(s.chunks, head...), s.event...), "\r\n"...)
	}
	s.chunk = slices.AppendSeq(s.chunk[:0], slices.Chunk(s.chunks, len(head)+len(s.event)+len("\r\n")))
	framer := http2.NewFramer(&s.frames, nil)
	for i := range s.Streams {
		for _, chunk := range s.chunk {
			_ = framer.WriteData(uint32(2*i+1), false, chunk[len(head):len(chunk)-len("\r\n")]) // to memory
		}
	}
	for w := range s.watchers {
		if err := s.write(w); err != nil {
			delete(s.watchers, w)
			w.Close()
		}
	}
}

func (s *floorServer) write(w *floorWatcher) (err error) {
	if w.below == nil {
		s.vector = append(s.vector[:0], s.chunk...)
		left := s.vector // without what has been written
		_, err = left.WriteTo(w.Conn)
		return err
	}
	events := s.chunks
	if w.h2 {
		events = s.frames.Bytes()
	}
	w.below.held = w.below.held[:0]
	if _, err = w.Write(events); err == nil {
		_, err = w.below.Conn.Write(w.below.held)
	}
	return err
}

// accept takes clients, each with its request. Every client asks at once.
func (s *floorServer) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		if watches, err := s.answer(c); err != nil || !watches {
			c.Close()
		}
	}
}

// answer answers one request: with a list of empty objects, or with the head of a watch. It reports
// whether it is a watch.
func (s *floorServer) answer(c net.Conn) (watches bool, err error) {
	const patience = 5 * time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	w := &floorWatcher{Conn: c}
	if s.tls != nil {
		w.below = &gathered{Conn: c}
		secured := tls.Server(w.below, s.tls)
		if err := secured.Handshake(); err != nil {
			return false, err
		}
		w.Conn, w.h2 = secured, secured.ConnectionState().NegotiatedProtocol == "h2"
	}
	if w.h2 {
		watches, err = true, s.answerStreams(w)
	} else {
		watches, err = s.answerRequest(w)
	}
	if err != nil || !watches {
		return false, err
	}
	if w.below != nil {
		w.below.gathering = true
	}
	s.watchers[w] = true
	return true, c.SetDeadline(time.Time{})
}

func (s *floorServer) answerRequest(rw io.ReadWriter) (watches bool, err error) {
	r, err := http.ReadRequest(bufio.NewReader(rw))
	if err != nil {
		return false, err
	}
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	if r.URL.Query().Has("watch") {
		_, err = io.WriteString(rw, head+"Transfer-Encoding: chunked\r\n\r\n")
		return true, err
	}
	list := `{"metadata":{"resourceVersion":"1"},"items":[{}` + strings.Repeat(",{}", s.Objects-1) + `]}`
	_, err = fmt.Fprintf(rw, "%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", head, len(list), list)
	return false, err
}

// answerStreams begins an HTTP/2 connection, and answers its watches. Later frames of the client are
// not read: windows do not bind a floor, so its clients must give them back seldom.
func (s *floorServer) answerStreams(rw io.ReadWriter) error {
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(rw, preface[:]); err != nil || string(preface[:]) != http2.ClientPreface {
		return errors.Join(err, errors.New("no preface of HTTP/2"))
	}
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // to memory
	framer := http2.NewFramer(rw, rw)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for answered := 0; answered < s.Streams; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			err = framer.WriteSettingsAck()
		case *http2.HeadersFrame:
			answered++
			err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
