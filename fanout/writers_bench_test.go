//go:build linux

package fanout_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// BenchmarkWriters compares ways to write one list of frames to many sockets: pod events of 3.7 KB, over TCP on loopback.
//
//	order ──pipe──▶ ┌ child process ─────────┐ ──TCP──▶ clients, in this process: one epoll that counts and discards
//	"up to 17, now" │ append, wake, writev   │
//	                └ its CPU is what counts ┘
//
// The writers are
//
//   - goroutine: one goroutine for each client waits for the list to grow and does a blocking writev (writers_goroutine_test.go);
//   - flusher: this package, with a sink that does what the proxy's does in plaintext (writers_flusher_test.go);
//   - epoll: a loop for each processor, with an epoll of its own, writes to bare file descriptors (writers_epoll_test.go).
//
// All scan each event as it comes, and take at most as much in one write as the flusher does. An order
// bears the time at which it was given, and latencies are from then until a client has read the event: the time until the child gets to
// append it counts. With load=saturated the next 8 events are ordered once every client that reads has all but 24 of those ordered before.
//
// A case fails unless every client has read every byte, and the last event in its place; 16 of them compare each byte. Stalled
// clients do not read until latencies have been taken; then they must get everything too. The variable in profileEnv names a directory
// for a CPU profile of each writer.
func BenchmarkWriters(b *testing.B) {
	if config := os.Getenv(writerEnv); config != "" {
		runWriter(b, config)
		return
	}
	cases := []writerCase{
		{clients: 100, rate: 50}, {clients: 100},
		{clients: 1000, rate: 50}, {clients: 1000},
		{clients: 5000, rate: 10}, {clients: 5000, rate: 50}, {clients: 5000},
		{clients: 1000, stalled: 100, rate: 50}, {clients: 1000, stalled: 100},
	}
	for _, c := range cases {
		for _, c.writer = range []string{"goroutine", "flusher", "epoll"} { // in turn, so that a noisy neighbour disturbs all
			c.run(b)
		}
	}
	for _, c := range cases[:4] {
		for _, c.writer = range []string{"goroutine-cond", "flusher-1", "epoll-1", "epoll-blocks"} { // variants, see newWriter
			c.run(b)
		}
	}
}

// A writerCase is one measurement, and what the child is told.
type writerCase struct {
	writer  string
	clients int
	stalled int // of clients
	rate    int // events a second; 0 is as many as the slowest client that reads takes
}

func (c writerCase) String() string {
	load := "saturated"
	if c.rate > 0 {
		load = fmt.Sprint(c.rate)
	}
	name := fmt.Sprintf("writer=%s/clients=%d/load=%s", c.writer, c.clients, load)
	if c.stalled > 0 {
		name += fmt.Sprintf("/stalled=%d", c.stalled)
	}
	return name
}

const (
	writersWarmUp   = 500 * time.Millisecond
	writersWindow   = 2500 * time.Millisecond
	writersPatience = 30 * time.Second

	samples = 16 // clients, at least, that compare each byte and take times; evenly spread, because writers go from first to last, or back

	// lead and stride bound how far ahead of the slowest client events are ordered with load=saturated.
	lead   = 32
	stride = 8

	profileEnv = "WRITERS_PROFILE"
)

func (c writerCase) run(b *testing.B) {
	b.Run(c.String(), func(b *testing.B) {
		for range b.N {
			c.measure(b)
		}
	})
}

func (c writerCase) measure(b *testing.B) {
	form := newEventForm()
	p := startWriter(b, c)
	r := newReaders(b, form)
	defer r.close()

	var empty, idle, loaded writerState
	p.report(&empty)
	for i := range c.clients {
		stalled := i < c.stalled
		r.connect(empty.Address, stalled, !stalled && i%((c.clients-c.stalled)/samples) == 0)
	}
	p.report(&idle) // all are accepted

	o := orders{process: p, readers: r, rate: c.rate}
	o.next() // stacks and buffers are as they stay
	o.settle()
	p.order(0) // asks for a report
	p.report(&idle)

	o.during(writersWarmUp)
	r.begin()
	cpu, read, began := p.cpu(), r.delivered(), time.Now()
	o.during(writersWindow)
	cpu, read = p.cpu()-cpu, r.delivered()-read
	elapsed := time.Since(began)
	latencies := r.end()
	o.settle()

	for range 10 { // a client may have read what its writer has yet to count
		p.order(0)
		if p.report(&loaded); loaded.Behind == c.stalled {
			break
		}
	}
	if loaded.Behind != c.stalled {
		b.Errorf("%d clients are behind, want %d", loaded.Behind, c.stalled)
	}
	r.wake()
	o.settle()
	r.wantWhole(o.ordered + 1)
	o.next()
	o.settle()
	r.check()
	r.close() // before the writer closes connections
	p.stop()
	if b.Failed() {
		b.FailNow()
	}

	deliveries := float64(read) / float64(len(form.chunk))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(cpu.Seconds()*1e6/deliveries, "cpu-µs/delivery")
	b.ReportMetric(deliveries/elapsed.Seconds(), "deliveries/s")
	batch := float64(loaded.Appended) * float64(c.clients-c.stalled) / float64(loaded.Writes)
	b.ReportMetric(batch, "events/write")
	b.ReportMetric(cpu.Seconds()*1e6/deliveries*batch, "cpu-µs/write") // does not depend on how batches happened to grow
	slices.Sort(latencies)
	b.ReportMetric(milliseconds(latencies, 0.50), "p50-ms")
	b.ReportMetric(milliseconds(latencies, 0.99), "p99-ms")
	n := float64(c.clients)
	b.ReportMetric(float64(idle.RSS-empty.RSS)/1024/n, "rss-KiB/idle-client")
	b.ReportMetric(float64(idle.Sys-empty.Sys)/1024/n, "sys-KiB/idle-client")
	b.ReportMetric(float64(idle.Goroutines-empty.Goroutines)/n, "goroutines/idle-client")
	b.ReportMetric(float64(idle.Files-empty.Files)/n, "fds/idle-client")
	if c.stalled > 0 && c.rate > 0 { // more events have a greater error
		events := float64(loaded.Appended) * eventMemory()
		b.ReportMetric(events/1024, "events-KiB")
		b.ReportMetric((float64(loaded.Memory-idle.Memory)-events)/1024/float64(c.stalled), "own-KiB/stalled-client")
	}
}

// eventMemory is how many bytes an event takes in a list.
var eventMemory = sync.OnceValue(func() float64 {
	const n = 1000
	scanner, form := framing.NewScanner(framing.JSON, fieldPaths), newEventForm()
	before := heap()
	l := newChannelLog()
	first := l.last()
	for range n {
		ev, err := scanner.Event(form.line(form.chunk))
		if err != nil {
			panic(err)
		}
		l.append(ev.Object.Frame(ev.Type))
	}
	held := heap() - before
	runtime.KeepAlive(first)
	return float64(held) / n
})

func milliseconds(sorted []int64, quantile float64) float64 {
	return float64(sorted[int(quantile*float64(len(sorted)-1))]) / 1e6
}

// orders is the load of one case. It belongs to the benchmark's goroutine.
type orders struct {
	process *writerProcess
	readers *readers
	rate    int
	ordered uint64 // events
}

// during orders events for a time. When it returns, nothing is being ordered.
func (o *orders) during(d time.Duration) {
	start := time.Now()
	if o.rate > 0 {
		for i := range int(d.Seconds() * float64(o.rate)) {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(o.rate))))
			o.next()
		}
		time.Sleep(time.Until(start.Add(d)))
		return
	}
	o.ordered = max(o.ordered, lead)
	o.process.order(o.ordered)
	stop := o.readers.each(stride, func() {
		o.ordered += stride
		o.process.order(o.ordered)
	})
	time.Sleep(d)
	stop()
}

// next orders one event.
func (o *orders) next() {
	o.ordered++
	o.process.order(o.ordered)
}

// settle waits until all clients that read have all that was ordered.
func (o *orders) settle() { o.readers.await(o.ordered) }

// writerProcess is the child, seen from here.
type writerProcess struct {
	b       *testing.B
	cmd     *exec.Cmd
	orders  *os.File
	reports *json.Decoder
	output  *strings.Builder
}

// startWriter starts this program as a writer.
func startWriter(b *testing.B, c writerCase) *writerProcess {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	theirs, orders := pipe(b)
	reports, out := pipe(b)
	p := &writerProcess{b: b, orders: orders, reports: json.NewDecoder(reports), output: new(strings.Builder)}
	p.cmd = exec.Command(program, "-test.run=^$", "-test.bench=^BenchmarkWriters$", "-test.benchtime=1x")
	if dir := os.Getenv(profileEnv); dir != "" {
		p.cmd.Args = append(p.cmd.Args, "-test.cpuprofile="+filepath.Join(dir, strings.ReplaceAll(c.String(), "/", ",")+".pprof"))
	}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", writerEnv, c.writer, c.clients))
	p.cmd.ExtraFiles = []*os.File{theirs, out}
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	theirs.Close()
	out.Close()
	b.Cleanup(func() {
		orders.Close()
		reports.Close()
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.cmd.Wait()
		}
	})
	return p
}

func pipe(b *testing.B) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	return r, w
}

// report waits for a report.
func (p *writerProcess) report(s *writerState) {
	if err := p.reports.Decode(s); err != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
		p.b.Fatalf("writer: %v: %s", err, p.output)
	}
}

// order has the child append events until it has appended n. It may be called from any goroutine, by one at a time.
func (p *writerProcess) order(n uint64) {
	if _, err := p.orders.Write(appendOrder(nil, n, time.Now())); err != nil {
		p.b.Errorf("order %d: %v", n, err)
	}
}

// stop ends the child, which must leave nothing behind.
func (p *writerProcess) stop() {
	p.orders.Close()
	if err := p.cmd.Wait(); err != nil {
		p.b.Errorf("writer: %v: %s", err, p.output)
	}
}

// cpu is the user and system time that the child has used.
func (p *writerProcess) cpu() time.Duration {
	used, err := cpuOf(p.cmd.Process.Pid)
	if err != nil {
		p.b.Fatal(err)
	}
	return used
}
