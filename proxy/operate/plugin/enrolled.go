package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/operate/enrol"
)

const enrolledUsage = `kubectl watchfan enrolled shows which workloads use watchfan, since when, and their watches there.

PODS are those that are enrolled, of all that would be after a restart. VIEW is what the namespace names. WATCHES are served from caches;
those that pass through to kube-apiserver are beside them. The last line has what that saves.`

// newEnrolled returns the command enrolled.
func (c *command) newEnrolled() *cobra.Command {
	var namespace string
	enrolled := &cobra.Command{
		Use: "enrolled", Short: "Show which workloads use watchfan, since when, and what that saves",
		Long: enrolledUsage, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, client, err := c.connect()
			if err != nil {
				return err
			}
			workloads, err := enrol.List(cmd.Context(), client, namespace)
			if err != nil {
				return fmt.Errorf("list enrolled pods: %w", err)
			}
			u, err := c.use(cmd.Context(), cfg, client)
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "watches are unknown: %s\n", request.ShownError(err))
			}
			return writeEnrolled(cmd.OutOrStdout(), workloads, u, time.Now())
		},
	}
	c.addPodFlags(enrolled.Flags(), "", "")
	enrolled.Flags().StringVarP(&namespace, "namespace", "n", "", "`NAMESPACE` of the workloads (default all)")
	return enrolled
}

// use is what the pods of watchfan serve.
type use struct {
	served, passed map[string]int // watches by client's IP address
	clients        int            // watches that are served from caches, but those of pods on nodes at the tier
	upstream       int            // watches that watchfan has at kube-apiserver for them
	tier           bool           // a pod was asked whose upstream is kube-apiserver
	partly         bool           // a pod has more watches than it lists
}

// use asks the pods of watchfan. It returns nil if it cannot.
func (c *command) use(ctx context.Context, cfg *rest.Config, client dynamic.Interface) (*use, error) {
	pods, err := findPods(ctx, client, c.namespace, c.pod, c.selector)
	if err != nil {
		return nil, err
	}
	u := &use{served: make(map[string]int), passed: make(map[string]int)}
	for _, p := range pods {
		if err := ask(ctx, cfg, p, func(admin string) error { return u.add(admin, p) }); err != nil {
			return nil, err
		}
	}
	for _, p := range pods {
		for _, ip := range p.ips {
			if p.onNode {
				u.clients -= u.served[ip]
			}
		}
	}
	return u, nil
}

// add adds what one pod serves.
func (u *use) add(admin string, p pod) error {
	var list diagnose.WatcherList
	if err := diagnose.Ask(admin, diagnose.WatchersPath, url.Values{"limit": {"10000"}}, &list); err != nil {
		return err
	}
	var lanes diagnose.DebugState
	if err := diagnose.Ask(admin, "/debug/lanes", url.Values{}, &lanes); err != nil {
		return err
	}
	for _, w := range list.Watchers {
		count(u.served, w.Client)
	}
	for _, w := range list.Passed.Watchers {
		count(u.passed, w.Client)
	}
	u.partly = u.partly || list.Matching > len(list.Watchers) || list.Passed.Matching > len(list.Passed.Watchers)
	u.clients += list.Total
	if !p.onNode {
		u.upstream, u.tier = u.upstream+len(lanes.Lanes), true
	}
	return nil
}

func count(by map[string]int, client string) {
	host, _, _ := net.SplitHostPort(client)
	by[host]++
}

func writeEnrolled(w io.Writer, workloads []*enrol.Workload, u *use, now time.Time) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tWORKLOAD\tPODS\tSINCE\tVIEW\tWATCHES")
	for _, l := range workloads {
		since, watches := "-", "-"
		if !l.Since.IsZero() {
			since = duration.HumanDuration(now.Sub(l.Since))
		}
		if u != nil {
			served, passed := 0, 0
			for _, ip := range l.IPs {
				served, passed = served+u.served[ip], passed+u.passed[ip]
			}
			if watches = strconv.Itoa(served); passed > 0 {
				watches += fmt.Sprintf(" (%d pass through)", passed)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%d/%d\t%s\t%s\t%s\n", request.Shown(l.Namespace), l.Name, l.Enrolled, l.Pods, since, cmp.Or(l.View, "-"), watches)
	}
	if err := table.Flush(); err != nil || u == nil {
		return err
	}
	if u.partly {
		fmt.Fprintln(w, "\nA pod of watchfan has more watches than it lists, so WATCHES are too few.")
	}
	if !u.tier {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nkube-apiserver has %d watches of watchfan in place of its clients' %d.\n",
		u.upstream, u.clients)
	return err
}
