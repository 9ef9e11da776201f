//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

func leanListsSection(o *Options) *section {
	s := &section{
		bench: "LeanLists",
		title: fmt.Sprintf("What an informer of %d pods reads first, TLS: whole pods and lean ones", o.Pods),
		note: "list = resourceVersion=0; watchlist = a watch with initial events, up to the bookmark that ends them. " +
			"kube-apiserver sends whole pods for either form up to 1.37. " +
			"MB = of the body. CPU and time are means of a few requests, one after the other.",
		columns: []column{
			{"MB", unitRequestBytes, 1e-6}, {"CPU ms", unitRequestCPU, 1e-6}, {"all servers", unitAllRequestCPU, 1e-6},
			{"time ms", unitP50, 1e-6},
		},
	}
	for _, c := range leanListCases {
		if !c.lean {
			continue
		}
		most := 0.65
		if c.encoding == "gzip" {
			most = 0.6
		}
		whole := c
		whole.lean = false
		title := fmt.Sprintf("bytes, lean / whole: %s, %s, %s", c.request(), c.format, c.encoding)
		s.goals = append(s.goals, goal{title, unitRequestBytes, c.axes(), whole.axes(), most})
	}
	return s
}

// A leanListCase is a request for all pods in one form.
type leanListCase struct {
	form
	watch bool // a watch with initial events, and not a list
}

// leanListCases are the requests of the part. Watches are in JSON.
var leanListCases = func() (all []leanListCase) {
	for _, watch := range []bool{false, true} {
		for _, format := range []string{"json", "protobuf"} {
			for _, encoding := range []string{"identity", "gzip"} {
				for _, lean := range []bool{false, true} {
					if !watch || format == "json" {
						all = append(all, leanListCase{form{format, encoding, "0", http11, lean}, watch})
					}
				}
			}
		}
	}
	return all
}()

func (c leanListCase) request() string {
	if c.watch {
		return "watchlist"
	}
	return "list"
}

func (c leanListCase) axes() []axis {
	pods := "whole"
	if c.lean {
		pods = "lean"
	}
	return []axis{{"request", c.request()}, {"format", c.format}, {"encoding", c.encoding}, {"pods", pods}}
}

// leanLists measures one peer, over TLS.
func (p *program) leanLists(ctx context.Context, st *stage) error {
	if !st.peer.tls {
		return nil
	}
	for i, format := range []string{"json", "protobuf"} {
		if st.peer == direct {
			break
		}
		if err := fillPods(ctx, st.proxy, form{format: format}.mediaType(), i+1); err != nil {
			return err
		}
	}
	for _, c := range leanListCases {
		if c.lean && st.peer == direct {
			continue
		}
		x := sample{peer: st.peer, axes: c.axes()}
		x.metrics, x.remark, x.err = measureLeanList(ctx, st, c)
		if err := p.note(ctx, st, partLeanLists, x, 3); err != nil {
			return err
		}
	}
	return nil
}

// measureLeanList makes one request and checks what comes, and then measures a few. It also returns
// a remark.
func measureLeanList(ctx context.Context, st *stage, c leanListCase) (m []metric, remark string, err error) {
	const times = 3
	var all []lister
	defer func() { closeAll(all) }()
	for range 1 + times {
		l, err := c.connect(st.endpoint(), st.coll.objects)
		if err != nil {
			return nil, "", err
		}
		all = append(all, l)
	}
	var body bytes.Buffer
	if _, err := all[0].list(&body); err != nil {
		return nil, "", err
	}
	size := body.Len()
	if c.watch {
		if c.encoding == "gzip" && !all[0].(*initialWatch).compressed() {
			remark = "answered without compression"
		}
	} else if err := c.check(&body, st.coll.objects); err != nil {
		return nil, "", err
	}
	if err := sleep(ctx, settleTime); err != nil {
		return nil, "", err
	}
	meter, err := measure.StartMeter(withBench(st))
	if err != nil {
		return nil, "", err
	}
	var took time.Duration
	for _, l := range all[1:] {
		d, err := l.list(io.Discard)
		if err != nil {
			return nil, "", err
		}
		took += d
	}
	used, err := meter.Read()
	return []metric{ // the window is too short for the use of everything else
		{unitRequestBytes, float64(size)}, {unitRequestCPU, float64(used.CPU[st.peer.name]) / times},
		{unitAllRequestCPU, float64(serversCPU(&used)) / times}, {unitP50, float64(took) / times},
	}, remark, err
}

// connect returns a client that makes the request once. The answer must have all objects.
func (c leanListCase) connect(e endpoint, objects int) (lister, error) {
	if !c.watch {
		return newLister(e, c.form, podsPath)
	}
	under, err := dialList(e, http11)
	if err != nil {
		return nil, err
	}
	request := requestHead(e, resyncURI, c.accept(), c.encoding == "gzip")
	return &initialWatch{listConn: under, request: request, lean: c.lean, syncer: syncer{objects: objects}}, nil
}

// check decodes a list. It must have every pod, with the fields of each manager or without.
func (c leanListCase) check(body io.Reader, objects int) error {
	list, err := decodePods(c.form, body)
	switch {
	case err != nil:
		return fmt.Errorf("decode list: %w", err)
	case len(list.Items) != objects:
		return fmt.Errorf("list has %d pods, want %d", len(list.Items), objects)
	}
	managers := 2
	if c.lean {
		managers = 0
	}
	for i := range list.Items {
		if n := len(list.Items[i].ManagedFields); n != managers {
			return fmt.Errorf("pod %s has the fields of %d managers, want %d", list.Items[i].Name, n, managers)
		}
	}
	return nil
}

// An initialWatch is a watch up to the end of its initial events. It is a lister that lists once.
type initialWatch struct {
	*listConn
	request string
	lean    bool
	syncer  syncer // counts the events
}

// compressed reports whether the answer was compressed.
func (l *initialWatch) compressed() bool { return l.syncer.scan.inflate != nil }

// list implements lister.
func (l *initialWatch) list(w io.Writer) (time.Duration, error) {
	start := time.Now()
	if _, err := io.WriteString(l.rw, l.request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(l.rw), nil)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return 0, fmt.Errorf("watch answered %s: %s", resp.Status, body)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		l.syncer.scan.inflate = new(inflater)
	}
	for !l.syncer.done {
		n, err := resp.Body.Read(l.buf)
		if _, wrong := w.Write(l.buf[:n]); wrong != nil {
			return 0, wrong
		}
		if wrong := l.syncer.scan.data(l.buf[:n], l.event); wrong != nil {
			return 0, wrong
		}
		if err != nil && !l.syncer.done {
			return 0, fmt.Errorf("%d objects came: %w", l.syncer.added, errors.Join(errEnded, err))
		}
	}
	return time.Since(start), nil
}

// event takes one event.
func (l *initialWatch) event(line []byte) error {
	if l.lean && bytes.Contains(line, managedMark) {
		return errNotLean
	}
	return l.syncer.event(line)
}
