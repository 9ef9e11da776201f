package diagnose

import (
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Explain returns the command watchfan explain: it prints the verdict on one watch of a running
// watchfan.
func Explain() *cobra.Command {
	var from adminPort
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain [ID]",
		Short: "Say why one watch is slow, and what to do",
		Long:  explainUsage,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return from.explain(c.OutOrStdout(), strings.Join(args, ""), asJSON)
		},
	}
	from.addFlag(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

const explainUsage = `watchfan explain says why a watch is slow. The cause is its client, the network, watchfan or
kube-apiserver, or there is nothing to send.

watchfan top shows the IDs. Without ID, the slowest watch is explained.`

func (a *adminPort) explain(w io.Writer, id string, asJSON bool) error {
	if id == "" {
		var list WatcherList
		if err := a.decode(WatchersPath, url.Values{"limit": {"1"}}, &list); err != nil {
			return err
		}
		if len(list.Watchers) == 0 {
			return errors.New("no watch is served from a cache now; kube-apiserver serves those that pass through")
		}
		id = strconv.FormatUint(list.Watchers[0].ID, 10)
	}
	return a.print(w, WatchersPath+"/"+url.PathEscape(id), asJSON)
}
