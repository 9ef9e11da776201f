package load

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// A StormJob is the task of each client.
type StormJob struct {
	Addr    netip.AddrPort
	TLS     bool
	Request string // its head
	Clients int
	Objects int // initial events, at whose end a client is live; 0: it is live at the begin of its watch
}

// A StormState is the state of the clients so far.
type StormState struct {
	Opened     int       // watches that became live
	LastLive   time.Time // when there were as many as clients
	Refused    int       // 429s
	Failed     int       // attempts that failed otherwise
	FirstError string
}

// RunStormClients is `bench storm-front`. It runs the clients of the job in its input, which begin when there is
// one more byte. It writes their state before that, and when all are live, or else at the end of its input, with
// which it ends.
func RunStormClients(ctx context.Context, input io.Reader, states io.Writer) error {
	s, in, out := &stormClients{live: make(chan struct{})}, bufio.NewReader(input), json.NewEncoder(states)
	err := ReadJob(in, &s.job)
	if err == nil {
		err = RaiseFileLimit(s.job.Clients)
	}
	if err == nil {
		err = out.Encode(s.state)
	}
	if err != nil {
		return err
	}
	if _, err := in.ReadByte(); err != nil {
		return nil // there is no storm
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for range s.job.Clients {
		wg.Go(func() { s.client(ctx) })
	}
	go func() {
		_, _ = in.ReadByte()
		cancel()
	}()
	select {
	case <-s.live:
	case <-ctx.Done():
	}
	s.note(func(now *StormState) { err = out.Encode(now) })
	<-ctx.Done()
	wg.Wait()
	return err
}

// stormLife bounds each watch.
const stormLife = 3 * time.Minute

type stormClients struct {
	job  StormJob
	live chan struct{} // closed when as many watches became live as there are clients

	mu    sync.Mutex
	state StormState // guarded by mu
}

func (s *stormClients) note(change func(*StormState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// client keeps one watch open until ctx ends. It opens a watch that ended again, as soon as the
// server can be reached.
func (s *stormClients) client(ctx context.Context) {
	for ctx.Err() == nil {
		wait, err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.note(func(st *StormState) {
				st.Failed++
				st.FirstError = cmp.Or(st.FirstError, err.Error())
			})
		}
		_ = Sleep(ctx, wait)
	}
}

// watch opens a watch and reads it to its end. It returns the time to wait before the next attempt.
// It returns an error if the watch never became live, unless the answer was 429.
func (s *stormClients) watch(ctx context.Context) (time.Duration, error) {
	again := 200*time.Millisecond + rand.N(200*time.Millisecond)
	c, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", s.job.Addr.String())
	if err != nil {
		return again, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if s.job.TLS {
		// Real clients have their own machines. Here they skip work that is not needed.
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	}
	_ = c.SetDeadline(time.Now().Add(stormLife))
	if _, err := io.WriteString(c, s.job.Request); err != nil {
		return again, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 4<<10), nil)
	if err != nil {
		return again, err
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		s.note(func(st *StormState) { st.Refused++ })
		return retryAfter(resp.Header), nil
	}
	if resp.StatusCode != http.StatusOK {
		return again, errors.New("answered " + strconv.Itoa(resp.StatusCode))
	}
	if s.job.Objects > 0 {
		if err := readInitialEvents(resp.Body, s.job.Objects); err != nil {
			return again, err
		}
	}
	s.note(func(st *StormState) {
		if st.Opened++; st.Opened == s.job.Clients {
			st.LastLive = time.Now()
			close(s.live)
		}
	})
	_, _ = io.Copy(io.Discard, resp.Body)
	return rand.N(again), nil
}

// readInitialEvents reads up to the end bookmark, and checks the number of events.
func readInitialEvents(body io.Reader, objects int) error {
	lines := bufio.NewReaderSize(body, 32<<10)
	for added := 0; ; {
		line, err := lines.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)):
			added++
		case bytes.Contains(line, endMark) && added == objects:
			return nil
		default:
			return fmt.Errorf("after %d objects: %.200q", added, line)
		}
	}
}
