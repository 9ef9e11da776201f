//go:build linux

package fanout_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/watchfan/watchfan/framing"
)

// BenchmarkZstd compares gzip, which clients get here, with zstd (RFC 8878), which no client gets.
// It measures what an event of a stream of pods costs.
//
//   - method=behind compresses each event once for all clients, after the previous event. With zstd
//     that is the block of a frame whose raw dictionary is the previous event. The block is placed
//     after that event's block in one long frame, which any decoder reads. This is correct only if
//     the block does not begin with an offset of 1, 4 or 8, because the encoder takes these for
//     offsets that the decoder remembers. None of these events begins so.
//   - method=alone compresses each event once for all clients, with zstd as a frame.
//   - method=stream has a compressor for each client, flushed after each event. So its cost is for
//     each delivery. It refers back as far as its window, 32 KiB for gzip and 4 or 8 MiB for zstd.
//     Most of 1,000 pods recur within that.
//
// Everything is decompressed and compared before the clock starts.
func BenchmarkZstd(b *testing.B) {
	const events = 5000 // more than a window holds
	p := newPods(1000)
	frames := make([]framing.Frame, events)
	plain := make([][]byte, events)
	for i := range frames {
		ev := p.event("MODIFIED", p.rng.IntN(1000), 1_000_000+uint64(i))
		frames[i] = ev.Object.Frame(ev.Type)
		plain[i] = frames[i].Payload(nil)
	}
	whole := bytes.Join(plain[1:], nil)
	// bench compresses event after event. The first only serves as the previous event. decode
	// returns what wire holds of the others.
	bench := func(name string, compressor func() func(i int) []byte, decode func(wire [][]byte) ([]byte, error)) {
		b.Run(name, func(b *testing.B) {
			before := heap()
			compress := compressor()
			var wire [][]byte
			for i := 1; i < events; i++ {
				wire = append(wire, bytes.Clone(compress(i)))
			}
			if got, err := decode(wire); err != nil || !bytes.Equal(got, whole) {
				b.Fatalf("decompressed %d bytes, want %d: %v", len(got), len(whole), err)
			}
			size := float64(len(bytes.Join(wire, nil)))
			wire = nil
			held := heap() - before
			b.ReportAllocs()
			began, i := cpuTime(b), 0
			for b.Loop() {
				compress(1 + i%(events-1))
				i++
			}
			b.ReportMetric((cpuTime(b)-began).Seconds()*1e6/float64(b.N), "cpu-µs/event")
			b.ReportMetric(size/(events-1), "B/event")
			b.ReportMetric(100*size/float64(len(whole)), "%")
			b.ReportMetric(float64(held)/1024, "KiB/compressor")
		})
	}

	gunzipped := func(wire [][]byte) ([]byte, error) {
		var body []byte
		for _, chunk := range wire {
			chunk = chunk[bytes.IndexByte(chunk, '\n')+1:]
			body = append(body, chunk[:len(chunk)-len("\r\n")]...)
		}
		return inflate(body, plain[0]) // the others may refer to it
	}
	bench("coding=gzip/method=behind", func() func(i int) []byte {
		return func(i int) []byte { return framing.GzipFrames(frames[i-1], frames[i]).Bytes() }
	}, gunzipped)
	bench("coding=gzip/method=alone", func() func(i int) []byte {
		return func(i int) []byte { return framing.GzipFrames(framing.Frame{}, frames[i]).Bytes() }
	}, gunzipped)
	bench("coding=gzip/method=stream", func() func(i int) []byte {
		var out bytes.Buffer
		w, err := flate.NewWriter(&out, 5)
		if err != nil {
			b.Fatal(err)
		}
		return flushing(&out, w, plain)
	}, func(wire [][]byte) ([]byte, error) { return inflate(bytes.Join(wire, nil), nil) })

	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault} {
		name := func(method string) string { return fmt.Sprintf("coding=zstd/level=%v/method=%s", level, method) }
		encoder := func(out io.Writer) *zstd.Encoder {
			e, err := zstd.NewWriter(out, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1),
				zstd.WithEncoderCRC(false))
			if err != nil {
				b.Fatal(err)
			}
			return e
		}
		bench(name("behind"), func() func(i int) []byte {
			e, buf := encoder(nil), []byte(nil)
			return func(i int) []byte {
				if err := e.ResetWithOptions(nil, zstd.WithEncoderDictRaw(0, plain[i-1])); err != nil {
					panic(err)
				}
				buf = e.EncodeAll(plain[i], buf[:0])
				return zstdBlock(buf)
			}
		}, func(wire [][]byte) ([]byte, error) {
			const head = "\x28\xb5\x2f\xfd\x00\x58" // a window of 2 MiB, no length, no checksum
			first := zstdBlock(encoder(nil).EncodeAll(plain[0], nil))
			got, err := unzstd(append([][]byte{[]byte(head), first}, wire...))
			return bytes.TrimPrefix(got, plain[0]), err
		})
		bench(name("alone"), func() func(i int) []byte {
			e, buf := encoder(nil), []byte(nil)
			return func(i int) []byte {
				buf = e.EncodeAll(plain[i], buf[:0])
				return buf
			}
		}, unzstd)
		bench(name("stream"), func() func(i int) []byte {
			var out bytes.Buffer
			return flushing(&out, encoder(&out), plain)
		}, unzstd)
	}
}

// cpuTime is the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// zstdBlock returns the one block of a frame without a checksum, marked as not the last. It changes
// frame.
func zstdBlock(frame []byte) []byte {
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		panic(err)
	}
	block := frame[h.HeaderSize:]
	block[0] &^= 1
	return block
}

// flushing returns a func that compresses event i as the next of a stream.
func flushing(out *bytes.Buffer, w interface {
	io.Writer
	Flush() error
}, plain [][]byte) func(i int) []byte {
	return func(i int) []byte {
		out.Reset()
		if _, err := w.Write(plain[i]); err != nil {
			panic(err)
		}
		if err := w.Flush(); err != nil {
			panic(err)
		}
		return out.Bytes()
	}
}

// inflate decompresses DEFLATE blocks, none of which is the last.
func inflate(blocks, dictionary []byte) ([]byte, error) {
	const last = "\x03\x00"
	return io.ReadAll(flate.NewReaderDict(io.MultiReader(bytes.NewReader(blocks), strings.NewReader(last)), dictionary))
}

// unzstd decompresses frames. The last may be incomplete.
func unzstd(wire [][]byte) ([]byte, error) {
	d, err := zstd.NewReader(bytes.NewReader(bytes.Join(wire, nil)), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	got, err := io.ReadAll(d)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return got, err
}
