package preview

import (
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/watchfan/watchfan/proxy/gate/view"
)

// print writes what has been counted, what is odd about the view, and the view.
func (n *counting) print(w io.Writer, config view.Config, watched time.Duration) error {
	fmt.Fprintf(w, "%s %s of %s in the view %s\n\n", n.info.GVR.GroupVersion(), n.info.GVR.Resource, n.server.Address(), config.Name)
	fmt.Fprintf(w, "%-24s %12s %12s\n", "", "all", "in the view")
	row := func(name string, counts [2]sum, of func(sum) int64, text func(int64) string) {
		all, some := of(counts[0]), of(counts[1])
		fmt.Fprintf(w, "%-24s %12s %12s", name, text(all), text(some))
		if all > 0 {
			fmt.Fprintf(w, " %5.1f %%", 100*float64(some)/float64(all))
		}
		fmt.Fprintln(w)
	}
	number, bytes := func(s sum) int64 { return int64(s.n) }, func(s sum) int64 { return s.bytes }
	plain := func(n int64) string { return fmt.Sprint(n) }
	during := "events in " + watched.Round(time.Second).String()
	row("objects", n.objects, number, plain)
	row("their bytes", n.objects, bytes, size)
	row(during, n.events, number, plain)
	row("their bytes", n.events, bytes, size)
	fmt.Fprintln(w, "\nBytes are those of JSON, not compressed.")
	n.printOdd(w)
	text, err := yaml.Marshal(map[string]view.Configs{"views": {config}})
	if err == nil {
		fmt.Fprintf(w, "\nFor the file of --config, and for the values of the chart:\n\n%s", text)
	}
	return err
}

// printOdd writes what the author of the view may not have meant.
func (n *counting) printOdd(w io.Writer) {
	gvr := n.info.GVR
	if unknown := n.view.Unknown(gvr); len(unknown) > 0 {
		fmt.Fprintf(w, "No such field is known of %s: %s. Is it misspelt?\n", gvr.Resource, strings.Join(unknown, ", "))
	}
	switch {
	case !n.view.Changes(gvr.GroupResource()):
		fmt.Fprintf(w, "The view says nothing about %s: its clients get them whole.\n", gvr.Resource)
	case n.protobuf != nil:
		fmt.Fprintf(w, "Clients that accept only protobuf get 406: %v.\n", n.protobuf)
	}
	if n.namespaces != nil {
		fmt.Fprintf(w, "Namespaces with the labels at the start: %d. Later ones are not counted.\n", len(n.namespaces))
	}
}

// size returns a number of bytes as people write it.
func size(n int64) string {
	f, unit := float64(n), 0
	for ; f >= 1024 && unit < 4; unit++ {
		f /= 1024
	}
	if unit == 0 {
		return fmt.Sprint(n, " B")
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[unit-1])
}
