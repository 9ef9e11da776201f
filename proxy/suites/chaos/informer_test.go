package chaos_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// lastObject is what informers wait for.
const lastObject = "last"

// informer is a program with client-go's informers that runs from the beginning to the end.
type informer struct {
	proxytest.Informers
	program string
	process *proxytest.InformerProcess
}

// informers are three releases of client-go in different ways.
func informers(t *testing.T) []*informer {
	t.Helper()
	programs := proxytest.InformerPrograms(t)
	var all []*informer
	for _, i := range []proxytest.Informers{
		{Release: "v0.37", Client: "typed", Representation: "protobuf", WatchList: true},
		{Release: "v0.37", Client: "dynamic", Representation: "json"},
		{Release: "v0.34", Client: "typed", Representation: "json"},
		{Release: "v0.34", Client: "metadata", Representation: "protobuf", WatchList: true},
		{Release: "v0.31", Client: "typed", Representation: "protobuf"},
		{Release: "v0.31", Client: "dynamic", Representation: "json", WatchList: true},
	} {
		all = append(all, &informer{Informers: i, program: programs[i.Release]})
	}
	return all
}

// start runs the informers until they see the last object.
func (i *informer) start(server string, more ...string) (err error) {
	resources := "configmaps,widgets.example.com"
	if i.Client == "typed" { // typed informers have no custom resources
		resources = "configmaps"
	}
	flags := []string{"--server", server, "--resources", resources, "--user-agent", "chaos", "--until",
		lastObject, "--timeout", "24h"}
	i.process, err = i.Start(context.Background(), i.program, append(flags, more...)...)
	return err
}

// holds waits for the end and returns what each informer holds: resourceVersion and digest by
// resource and key.
func (i *informer) holds() (map[string]string, error) {
	r, err := i.process.Report(patience)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	for resource, held := range r.Resources {
		for key, o := range held.Objects {
			all[resource+" "+key] = o.ResourceVersion + " " + o.Digest
		}
	}
	return all, nil
}

// compareInformers compares what the informers hold in the end with what new ones hold that are
// connected to kube-apiserver.
func (s *suite) compareInformers(all []*informer) error {
	for resource, body := range map[string]string{
		"configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`,
		"widgets":    `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q}}`,
	} {
		if _, err := s.admin.write(s.t.Context(), http.MethodPost, collection(resource, "chaos-a"), fmt.Sprintf(body, lastObject)); err != nil {
			return err
		}
	}
	for _, i := range all {
		got, err := i.holds()
		if err != nil {
			return err
		}
		twin := &informer{Informers: i.Informers, program: i.program}
		if err := twin.start(s.cluster.Ready.Server, "--ca-file", s.cluster.Ready.CAFile, "--token-file", s.cluster.Ready.TokenFiles["admin"]); err != nil {
			return err
		}
		want, err := twin.holds()
		if err != nil {
			return fmt.Errorf("straight: %w", err)
		}
		if len(want) < 3 {
			return fmt.Errorf("informers %s hold %d objects: this shows nothing", i, len(want))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("informers %s do not hold what new ones hold:\n%s", i, diff)
		}
	}
	return nil
}
