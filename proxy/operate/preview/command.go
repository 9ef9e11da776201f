package preview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const usage = `watchfan view try shows what a view leaves of a resource's objects, bytes and events. FILE is a
configuration file of watchfan, or one with views alone. The command lists the resource at
kube-apiserver, watches it for a while, and changes nothing.`

// command is a command line.
type command struct {
	upstream upstream.Options
	resource string
	name     string
	watch    time.Duration
}

// Command returns the command watchfan view. It ends early when its context ends.
func Command() *cobra.Command {
	var c command
	try := &cobra.Command{
		Use:     "try FILE --resource pods",
		Short:   "Show what a view leaves of a cluster's objects and events",
		Long:    usage,
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return c.check() },
		RunE: func(try *cobra.Command, args []string) error {
			return c.run(try.Context(), args[0], try.OutOrStdout(), try.ErrOrStderr())
		},
	}
	var server option.Table
	c.upstream.AddTo(&server)
	flags := try.Flags()
	flags.AddFlagSet(server.Flags())
	flags.StringVar(&c.resource, "resource", "", "`RESOURCE` to try the view on: pods, deployments.apps or apps/v1/deployments")
	flags.StringVar(&c.name, "view", "", "`NAME` of the view (default the only one of the file)")
	flags.DurationVar(&c.watch, "for", time.Minute, "`DURATION` of the watch, 1s to 1h")
	parent := &cobra.Command{Use: "view", Short: "Try a view on a cluster", Args: cobra.NoArgs}
	parent.AddCommand(try)
	return parent
}

// check says what is wrong with the flags.
func (c *command) check() error {
	switch {
	case c.resource == "":
		return errors.New("--resource is missing: give one, for example --resource pods")
	case c.watch < time.Second || c.watch > time.Hour:
		return fmt.Errorf("--for=%s: give 1s to 1h", c.watch)
	}
	return nil
}

// config returns the configuration of the view that the file is about.
func (c *command) config(file string) (view.Config, error) {
	var o view.Options
	t := option.Table{Partial: true}
	o.AddTo(&t)
	content, err := os.ReadFile(file)
	if err == nil {
		err = t.ReadConfig(filepath.Base(file), content)
	}
	if err != nil {
		return view.Config{}, err
	}
	byName := make(map[string]view.Config)
	for _, v := range o.Views {
		byName[string(v.Name)] = v
	}
	names := strings.Join(slices.Sorted(maps.Keys(byName)), ", ")
	found, ok := byName[c.name]
	switch {
	case len(byName) == 0:
		return found, fmt.Errorf("%s has no views", file)
	case c.name == "" && len(byName) == 1:
		return o.Views[0], nil
	case c.name == "":
		return found, fmt.Errorf("%s has several views: give --view with one of %s", file, names)
	case !ok:
		return found, fmt.Errorf("%s has no view %s: give --view with one of %s", file, c.name, names)
	}
	return found, nil
}

func (c *command) run(ctx context.Context, file string, stdout, stderr io.Writer) error {
	config, err := c.config(file)
	if err != nil {
		return err
	}
	cfg, err := c.upstream.Config()
	if err != nil {
		return err
	}
	server, err := upstream.NewUpstream(cfg)
	if err != nil {
		return err
	}
	defer server.CloseIdleConnections()
	discovery := upstream.NewDiscovery(server, exchange.NewGuard(metrics.NewSet(), slog.New(slog.DiscardHandler)))
	defer discovery.End()
	gvr, err := discovery.Resolve(ctx, c.resource)
	if err != nil {
		return fmt.Errorf("%s: %w", server.Address(), err)
	}
	info, _ := discovery.Lookup(ctx, gvr)
	set := view.New(&view.Options{Views: view.Configs{config}}, metrics.NewSet())
	n := counting{server: server, info: info, view: set.Get(string(config.Name))}
	if err := n.prepare(ctx); err != nil {
		return err
	}
	if err := n.list(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "Watching %s of %s for %s.\n", c.resource, server.Address(), c.watch)
	began := time.Now()
	if err := n.watch(ctx, c.watch); err != nil {
		return err
	}
	return n.print(stdout, config, time.Since(began))
}
