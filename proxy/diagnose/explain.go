package diagnose

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/watchfan/watchfan/proxy/option"
)

// Explain is the command watchfan explain: it prints the verdict on one watch of a running watchfan.
// It returns the exit code.
func Explain(args []string, stdout, stderr io.Writer) int {
	fs, from, asJSON := explainFlags()
	id, most := "", 1
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		id, args, most = args[0], args[1:], 0
	}
	if code, ok := parse(fs, args, explainUsage, most, stdout, stderr); !ok {
		return code
	}
	if id == "" {
		id = fs.Arg(0)
	}
	if err := from.explain(stdout, id, *asJSON); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func explainFlags() (fs *flag.FlagSet, from *adminPort, asJSON *bool) {
	fs = flag.NewFlagSet("watchfan explain", flag.ContinueOnError)
	return fs, adminFlag(fs), fs.Bool("json", false, "print JSON")
}

const explainUsage = `watchfan explain says why a watch is slow. The cause is its client, the network, watchfan or
kube-apiserver, or there is nothing to send.

Usage: watchfan explain [ID] [flags]

watchfan top shows the IDs. Without ID, the slowest watch is explained.`

func (a *adminPort) explain(w io.Writer, id string, asJSON bool) error {
	if id == "" {
		list, err := a.watchers(url.Values{"limit": {"1"}})
		if err != nil {
			return err
		}
		if len(list.Watchers) == 0 {
			return errors.New("no watch is served from a cache now; kube-apiserver serves those that pass through")
		}
		id = strconv.FormatUint(list.Watchers[0].ID, 10)
	}
	format := "text"
	if asJSON {
		format = "json"
	}
	body, err := a.get("/debug/watchers/"+url.PathEscape(id), url.Values{"format": {format}})
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// parse parses the flags of a command that takes at most so many arguments after them. If ok is
// false, the command ends with code.
func parse(fs *flag.FlagSet, args []string, usage string, most int, stdout, stderr io.Writer) (code int, ok bool) {
	fs.SetOutput(io.Discard) // the errors come back
	fs.Usage = func() {}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "%s\n\nFlags:\n", usage)
		fs.VisitAll(func(f *flag.Flag) {
			value, usage := flag.UnquoteUsage(f)
			fmt.Fprintf(stdout, "  %-24s %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
		})
		return 0, false
	case err != nil:
		fmt.Fprintf(stderr, "%v\nsee %s --help\n", option.Explain(fs, err), fs.Name())
		return 2, false
	case fs.NArg() > most:
		fmt.Fprintf(stderr, "%s does not take %q; see --help\n", fs.Name(), fs.Arg(most))
		return 2, false
	}
	return 0, true
}
