//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// clientGoName is the command, and the process in figures.
const clientGoName = "clientgo"

const stateStep = 20 * time.Millisecond // between two looks at a state

// A clientGoJob is the task of a program with reflectors.
type clientGoJob struct {
	Server, Token, Namespace string
	Objects                  int // ConfigMaps in the namespace
	Watches                  int // reflectors, of the objects in turn
}

// A clientGoState is the state of the reflectors so far.
type clientGoState struct {
	Watching    int // reflectors that have their object and watch
	Dials, Open int64
}

// A clientGoProgram is a program with many reflectors, and counts its connections.
type clientGoProgram struct {
	job         clientGoJob
	dials, open atomic.Int64
	reflectors  []*cache.Reflector
}

// runClientGo is `bench clientgo`. At a byte on its standard input the first reflector begins, and at
// the next one all others. It ends with its input.
func runClientGo(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) error {
	var jobFile, states string
	if err := parseFlags(clientGoName, func(fs *flag.FlagSet) {
		fs.StringVar(&jobFile, "job", "", "`file` with the task")
		fs.StringVar(&states, "states", "", "`file` for the state")
	}, args, stderr); err != nil {
		return err
	}
	p := &clientGoProgram{}
	text, err := os.ReadFile(jobFile)
	if err == nil {
		err = json.Unmarshal(text, &p.job)
	}
	if err == nil {
		err = p.make()
	}
	if err == nil {
		err = p.write(states)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	begin := make(chan []*cache.Reflector)
	go func() {
		defer cancel()
		in := bufio.NewReader(stdin)
		for _, some := range [][]*cache.Reflector{p.reflectors[:1], p.reflectors[1:], nil} {
			if _, err := in.ReadByte(); err != nil {
				return
			}
			select {
			case begin <- some:
			case <-ctx.Done():
				return
			}
		}
	}()
	for seen := 0; ctx.Err() == nil; {
		select {
		case some := <-begin:
			for _, r := range some {
				running.Go(func() { r.RunWithContext(ctx) })
			}
		case <-time.After(stateStep):
		case <-ctx.Done():
		}
		if n := p.watching(); n > seen && (n == 1 || n == p.job.Watches) {
			debug.FreeOSMemory()
			seen = n
		}
		if err := p.write(states); err != nil {
			return err
		}
	}
	return nil
}

// make makes the reflectors, which do nothing yet.
func (p *clientGoProgram) make() error {
	config := &rest.Config{Host: p.job.Server, BearerToken: p.job.Token, QPS: -1, UserAgent: watcherAgent, Dial: p.dial,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // the server is on this machine
		APIPath:         "/api",
		ContentConfig: rest.ContentConfig{GroupVersion: &corev1.SchemeGroupVersion,
			NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
			ContentType:          "application/vnd.kubernetes.protobuf"}}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	for i := range p.job.Watches {
		one := fields.OneTermEqualSelector("metadata.name", objectName(i%p.job.Objects))
		source := cache.NewListWatchFromClient(client, "configmaps", p.job.Namespace, one)
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		p.reflectors = append(p.reflectors, cache.NewReflector(source, &corev1.ConfigMap{}, store, 0))
	}
	return nil
}

// dial connects to loopback alone, because this program makes load.
func (p *clientGoProgram) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("%s is not a loopback address", address)
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.dials.Add(1)
	p.open.Add(1)
	return &countedConn{Conn: c, open: &p.open}, nil
}

// A countedConn counts down when it is closed.
type countedConn struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// watching returns the number of reflectors that have their objects.
func (p *clientGoProgram) watching() (n int) {
	for _, r := range p.reflectors {
		if r.LastSyncResourceVersion() != "" {
			n++
		}
	}
	return n
}

func (p *clientGoProgram) write(states string) error {
	text, err := json.Marshal(clientGoState{p.watching(), p.dials.Load(), p.open.Load()})
	if err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(states), "state.new")
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, states)
}
