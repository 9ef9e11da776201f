package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// informer is a program with client-go's informers, of proxy/e2e/informers, that has been there all the time.
type informer struct {
	release, client, representation string
	watchList                       bool

	program, resources string
	cmd                *exec.Cmd
	exited             chan struct{}
	out, log           bytes.Buffer
}

func (i *informer) String() string {
	way := "list"
	if i.watchList {
		way = "watch-list"
	}
	return fmt.Sprintf("informers of client-go %s (%s, %s, %s)", i.release, i.client, i.representation, way)
}

// lastObject is what informers wait for.
const lastObject = "last"

// informers are three releases of client-go in different ways.
func informers(t *testing.T) []*informer {
	t.Helper()
	programs := proxytest.BuildInformers(t, filepath.Join("..", "e2e", "informers"))
	all := []*informer{
		{release: "v0.37", client: "typed", representation: "protobuf", watchList: true},
		{release: "v0.37", client: "dynamic", representation: "json"},
		{release: "v0.34", client: "typed", representation: "json"},
		{release: "v0.34", client: "metadata", representation: "protobuf", watchList: true},
		{release: "v0.31", client: "typed", representation: "protobuf"},
		{release: "v0.31", client: "dynamic", representation: "json", watchList: true},
	}
	for _, i := range all {
		i.program, i.resources = programs[i.release], "configmaps,widgets.example.com"
		if i.client == "typed" {
			i.resources = "configmaps"
		}
	}
	return all
}

// start runs the informers until they are told of the last object.
func (i *informer) start(server string, more ...string) error {
	i.cmd = exec.Command(i.program, append([]string{"--server", server, "--client", i.client, "--representation", i.representation, "--resources", i.resources,
		"--user-agent", "chaos", "--until", lastObject, "--timeout", "24h"}, more...)...)
	i.cmd.Env = append(os.Environ(), fmt.Sprintf("KUBE_FEATURE_WatchListClient=%t", i.watchList))
	i.cmd.Stdout, i.cmd.Stderr = &i.out, &i.log
	if err := proxytest.Launch(i.cmd); err != nil {
		return err
	}
	i.exited = make(chan struct{})
	go func() {
		_ = i.cmd.Wait()
		close(i.exited)
	}()
	return nil
}

// holds waits for the end and returns what each informer holds: resourceVersion and digest by resource and key.
func (i *informer) holds() (map[string]string, error) {
	select {
	case <-i.exited:
	case <-time.After(patience):
		_ = i.cmd.Process.Kill()
		<-i.exited
		return nil, fmt.Errorf("%s: the last object has not come within %s; it said\n%s", i, patience, i.log.Bytes()[max(0, i.log.Len()-2000):])
	}
	lines := strings.Split(strings.TrimSpace(i.out.String()), "\n")
	var r struct {
		Resources map[string]struct {
			Objects map[string]struct{ ResourceVersion, Digest string }
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		return nil, fmt.Errorf("%s: %w; %s\n%s", i, err, i.cmd.ProcessState, i.log.Bytes()[max(0, i.log.Len()-2000):])
	}
	all := make(map[string]string)
	for resource, held := range r.Resources {
		for key, o := range held.Objects {
			all[resource+" "+key] = o.ResourceVersion + " " + o.Digest
		}
	}
	return all, nil
}

// compareInformers compares what informers hold that have been through it all with what new ones hold that ask kube-apiserver itself.
func (s *suite) compareInformers(ctx context.Context, all []*informer) error {
	for resource, body := range map[string]string{
		"configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`,
		"widgets":    `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q}}`,
	} {
		status, answer, err := s.admin.do(ctx, http.MethodPost, collection(resource, "chaos-a"), nil, jsonForm.accept, "application/json", fmt.Sprintf(body, lastObject))
		if err != nil || status >= 300 {
			return fmt.Errorf("create the last object: %d %.200s %w", status, answer, err)
		}
	}
	for _, i := range all {
		got, err := i.holds()
		if err != nil {
			return err
		}
		twin := &informer{release: i.release, client: i.client, representation: i.representation, watchList: i.watchList, program: i.program, resources: i.resources}
		if err := twin.start(s.cluster.Ready.Server, "--ca-file", s.cluster.Ready.CAFile, "--token-file", s.cluster.Ready.TokenFiles["admin"]); err != nil {
			return err
		}
		want, err := twin.holds()
		if err != nil {
			return fmt.Errorf("straight: %w", err)
		}
		if len(want) < 3 {
			return fmt.Errorf("%s hold %d objects: this shows nothing", i, len(want))
		}
		for key := range maps.Keys(want) {
			if got[key] != want[key] {
				return fmt.Errorf("%s hold %s %q, want %q", i, key, got[key], want[key])
			}
		}
		if len(got) != len(want) {
			keys := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(key string) bool { return want[key] != "" })
			return fmt.Errorf("%s hold what is not there: %q", i, keys)
		}
	}
	return nil
}
