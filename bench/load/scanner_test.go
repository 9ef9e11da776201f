package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httputil"
	"strings"
	"testing"
)

// modified returns an event in kube-apiserver's spelling, with the fields that the scanner reads.
func modified(seq uint64, pad string) []byte {
	text, err := json.Marshal(pad)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"o","namespace":"bench",`+
		`"annotations":{"bench-seq":"%d"},"managedFields":[{"manager":"bench","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:bench-seq":{}}}}}]},`+
		`"data":{"pad":%s}}}`, seq, text)
}

func TestSeqOf(t *testing.T) {
	f := func(line string, want uint64, wantOK, wantErr bool) {
		t.Helper()
		seq, ok, err := seqOf([]byte(line))
		if seq != want || ok != wantOK || (err != nil) != wantErr {
			t.Errorf("seqOf(%.60q): got %d, %v, %v want %d, %v, error %v", line, seq, ok, err, want, wantOK, wantErr)
		}
	}
	f(string(modified(0, "")), 0, true, false)
	f(string(modified(1<<60, "x")), 1<<60, true, false)
	f(string(modified(7, SeqMark+`9"`)), 7, true, false) // the mark inside a string is not the mark
	f(`{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"5"}}}`, 0, false, false)
	f(`{"type":"ERROR","object":{"kind":"Status","code":410}}`, 0, false, true)
	f(strings.Replace(string(modified(3, "")), "MODIFIED", "ADDED", 1), 0, false, true)
	f(`{"type":"MODIFIED","object":{"metadata":{}}}`, 0, false, true)
	f(`{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench-seq":""}}}}`, 0, false, true)
	f(`{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench-seq":"12`, 0, false, true)
	f(`garbage`, 0, false, true)
	f(``, 0, false, true)
}

// scanAll feeds wire to a scanner in pieces of random sizes, and returns the events.
func scanAll(wire []byte, r *rand.Rand) (lines [][]byte, err error) {
	var s scanner
	for len(wire) > 0 && err == nil {
		n := min(1+r.IntN(1+r.IntN(len(wire))), len(wire))
		err = s.feed(wire[:n], func(line []byte) error {
			lines = append(lines, bytes.Clone(line))
			return nil
		})
		wire = wire[n:]
	}
	return lines, err
}

// FuzzScanner: events through net/http's chunk writer, in chunks and reads of any size, come out
// whole, with their numbers.
func FuzzScanner(f *testing.F) {
	f.Add(uint64(1), uint64(3), uint16(0), "")
	f.Add(uint64(2), uint64(1<<40), uint16(2000), "\n\r\n0\r\n\r\n")
	f.Add(uint64(3), uint64(99), uint16(20), SeqMark+`5"`)
	f.Fuzz(func(t *testing.T, seed, first uint64, padding uint16, text string) {
		r := rand.New(rand.NewPCG(seed, 0))
		var body bytes.Buffer
		var want []uint64
		for i := range uint64(1 + r.IntN(5)) {
			seq := (first + i) >> 1
			want = append(want, seq)
			body.Write(modified(seq, strings.Repeat("p", r.IntN(int(padding)+1))+text))
			body.WriteByte('\n')
		}
		var wire bytes.Buffer
		for w := httputil.NewChunkedWriter(&wire); body.Len() > 0; {
			w.Write(body.Next(1 + r.IntN(4000)))
		}
		lines, err := scanAll(wire.Bytes(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) != len(want) {
			t.Fatalf("got %d events want %d", len(lines), len(want))
		}
		for i, line := range lines {
			got, ok, err := seqOf(line)
			if err != nil || !json.Valid(line) || !ok || got != want[i] {
				t.Fatalf("event %d: got %d (%v), want %d: %.100q", i, got, err, want[i], line)
			}
		}
	})
}

// FuzzScannerGarbage: the scanner does not panic on any input, and cuts do not change its events.
func FuzzScannerGarbage(f *testing.F) {
	f.Add([]byte("5\r\nab\ncd\r\n0\r\n\r\n"), uint64(1))
	f.Add([]byte("5;x=y\r\nab\ncd\r\n2\r\n\n\n\r\n"), uint64(2))
	f.Add([]byte("ffffffffff\r\n"), uint64(3))
	f.Add([]byte("HTTP/1.1 200 OK\r\n"), uint64(4))
	f.Fuzz(func(t *testing.T, wire []byte, seed uint64) {
		var whole scanner
		var want [][]byte
		wantErr := whole.feed(wire, func(line []byte) error {
			want = append(want, bytes.Clone(line))
			seqOf(line)
			return nil
		})
		got, err := scanAll(wire, rand.New(rand.NewPCG(seed, 0)))
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("cut up: got error %v want %v", err, wantErr)
		}
		if !bytes.Equal(bytes.Join(got, []byte{'\n'}), bytes.Join(want, []byte{'\n'})) || len(got) != len(want) {
			t.Fatalf("cut up: got %q want %q", got, want)
		}
	})
}

func TestScannerDoesNotAllocate(t *testing.T) {
	var wire bytes.Buffer
	w := httputil.NewChunkedWriter(&wire)
	for seq := range uint64(64) {
		w.Write(append(modified(seq, strings.Repeat("p", 1500)), '\n'))
	}
	var s scanner
	var sum uint64
	event := func(line []byte) error {
		seq, _, err := seqOf(line)
		sum += seq
		return err
	}
	if n := testing.AllocsPerRun(100, func() { s.feed(wire.Bytes(), event) }); n != 0 {
		t.Errorf("got %v allocations per 64 events want 0", n)
	}
}
