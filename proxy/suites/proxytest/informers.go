package proxytest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// ClientGoReleases are the releases that the program proxy/suites/e2e/informers is compiled against: the
// newest, the last in which watch-lists are off by default, and an old one that has them.
var ClientGoReleases = []string{"v0.37", "v0.34", "v0.31"}

// InformerPrograms returns the program's files by release. make builds them in bin, or INFORMERS_BIN
// names their directory.
func InformerPrograms(t testing.TB) map[string]string {
	t.Helper()
	dir := cmp.Or(os.Getenv("INFORMERS_BIN"), binaries)
	programs := make(map[string]string)
	for _, release := range ClientGoReleases {
		name := "informers-" + release
		programs[release] = built(t, filepath.Join(dir, name), name, "test", "INFORMERS_BIN")
	}
	return programs
}

// Informers is one way to run the program.
type Informers struct {
	Release                string // of client-go
	Client, Representation string // the program's flags
	WatchList              bool   // they begin with a watch-list, not a list
}

func (i Informers) String() string {
	way := "list"
	if i.WatchList {
		way = "watch-list"
	}
	return i.Release + "/" + i.Client + "/" + i.Representation + "/" + way
}

// Detectable reports whether client-go's detectors hold for i at kube-apiserver itself. With metadata
// in JSON they do not: the items of a list have no kind there, and those of a watch-list have one.
func (i Informers) Detectable() bool { return i.Client != "metadata" || i.Representation != "json" }

// Detected reports whether one of client-go's detectors looks at what i begins with.
func (i Informers) Detected() bool {
	lists := i.Release == "v0.31" && i.Client != "metadata"
	return i.Detectable() && (i.WatchList || lists)
}

// InformerProcess is the running program.
type InformerProcess struct {
	Informers
	Synced <-chan struct{} // closed when all informers have synced, or the program has ended

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended

	// Set before ended is closed.
	last   []byte // line of its output
	stderr bytes.Buffer
}

// Start runs program with more flags until it ends by itself or ctx does.
func (i Informers) Start(ctx context.Context, program string, flags ...string) (*InformerProcess, error) {
	flags = append([]string{"--client", i.Client, "--representation", i.Representation}, flags...)
	synced := make(chan struct{})
	p := &InformerProcess{Informers: i, Synced: synced, cmd: exec.CommandContext(ctx, program, flags...),
		ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("KUBE_FEATURE_WatchListClient=%t", i.WatchList))
	if i.Detectable() {
		p.cmd.Env = append(p.cmd.Env, Detectors...)
	}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := Launch(p.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		tellSynced := sync.OnceFunc(func() { close(synced) })
		defer tellSynced()
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if p.last = bytes.Clone(lines.Bytes()); string(p.last) == "synced" {
				tellSynced()
			}
		}
		_ = p.cmd.Wait() // the report says how
	}()
	return p, nil
}

// InformerReport is what the program prints in the end; see proxy/suites/e2e/informers/report.go.
type InformerReport struct {
	ClientGo  string
	Synced    bool
	Errors    []string // its own, and what client-go complained of
	Resources map[string]*struct {
		Lists, Checks, WatchLists, Watches int
		Updates, Deletes                   int
		Objects                            map[string]struct{ ResourceVersion, Digest string }
	}
}

// Report waits until the program ends and returns what it reports. It is an error if that takes
// longer than patience.
func (p *InformerProcess) Report(patience time.Duration) (*InformerReport, error) {
	select {
	case <-p.ended:
	case <-time.After(patience): //testlint:allow timer it only ends what hangs
		_ = p.cmd.Process.Kill()
		<-p.ended
		return nil, fmt.Errorf("%s has not ended within %s: %s", p, patience, p.complaints())
	}
	r := new(InformerReport)
	if err := json.Unmarshal(p.last, r); err != nil {
		return nil, fmt.Errorf("%s: no report but %.200q, %s: %s", p, p.last, p.cmd.ProcessState, p.complaints())
	}
	for line := range strings.Lines(p.stderr.String()) {
		// client-go warns that the consistency check is on.
		if (line[0] == 'E' || line[0] == 'W') && !strings.Contains(line, "data consistency check") {
			r.Errors = append(r.Errors, strings.TrimSpace(line))
		}
	}
	return r, nil
}

// complaints returns what is worth showing of the program's standard error.
func (p *InformerProcess) complaints() []byte { return Complaints(p.stderr.Bytes()) }
