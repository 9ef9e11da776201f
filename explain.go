package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy"
)

// explain prints why one watch has what it has, and no more.
func explain(args []string) int {
	fs := flag.NewFlagSet("watchfan explain", flag.ContinueOnError)
	from := adminFlag(fs)
	asJSON := fs.Bool("json", false, "print JSON")
	id, most := "", 1
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		id, args, most = args[0], args[1:], 0
	}
	if code, ok := parse(fs, args, "watchfan explain says why a watch is slow: its client, the network, watchfan, kube-apiserver, or because there is nothing to send.\n\nUsage: watchfan explain [ID] [flags]\n\nWithout ID, which watchfan top shows, it explains the slowest watch.", most); !ok {
		return code
	}
	if id == "" {
		id = fs.Arg(0)
	}
	if err := from.explain(os.Stdout, id, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (a *adminPort) explain(w io.Writer, id string, asJSON bool) error {
	if id == "" {
		list, err := a.watchers(url.Values{"limit": {"1"}})
		if err != nil {
			return err
		}
		if len(list.Watchers) == 0 {
			return errors.New("no watch is served from a cache now: those that pass through are kube-apiserver's own")
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

// parse parses the flags of a command that takes at most so many arguments behind them. If ok is false the command ends with code.
func parse(fs *flag.FlagSet, args []string, usage string, most int) (code int, ok bool) {
	fs.SetOutput(os.Stderr)
	fs.Usage = func() {}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Printf("%s\n\nFlags:\n", usage)
		fs.VisitAll(func(f *flag.Flag) {
			value, usage := flag.UnquoteUsage(f)
			fmt.Printf("  %-24s %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
		})
		return 0, false
	case err != nil:
		fmt.Fprintf(os.Stderr, "see %s --help\n", fs.Name()) // flag has said why
		return 2, false
	case fs.NArg() > most:
		fmt.Fprintf(os.Stderr, "%s does not take %q; see --help\n", fs.Name(), fs.Arg(most))
		return 2, false
	}
	return 0, true
}

// adminPort is the admin port of a running watchfan.
type adminPort struct{ url string }

func adminFlag(fs *flag.FlagSet) *adminPort {
	a := &adminPort{}
	fs.StringVar(&a.url, "admin", "http://127.0.0.1:8002", "`URL` of watchfan's admin port, by default http://127.0.0.1:8002; for a pod's, use kubectl port-forward POD 8002")
	return a
}

// watchers asks for watches.
func (a *adminPort) watchers(query url.Values) (*proxy.WatcherList, error) {
	query.Set("format", "json")
	body, err := a.get("/debug/watchers", query)
	if err != nil {
		return nil, err
	}
	list := &proxy.WatcherList{}
	if err := json.Unmarshal(body, list); err != nil {
		return nil, fmt.Errorf("%s answers, but not as watchfan does (%w): give its admin port with --admin", a.url, err)
	}
	return list, nil
}

// mostAnswer bounds what an admin port may answer, in bytes.
const mostAnswer = 64 << 20

func (a *adminPort) get(path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	base := strings.TrimSuffix(a.url, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("--admin=%q is no URL: give one, for example http://127.0.0.1:8002", a.url)
	}
	resp, err := http.DefaultClient.Do(req)
	var body []byte
	if err == nil {
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	}
	if err != nil {
		var cause *url.Error
		if errors.As(err, &cause) {
			err = cause.Err // without the URL, which we say ourselves
		}
		return nil, fmt.Errorf("watchfan's admin port does not answer at %s (%w): is watchfan running, and is that its --admin-port? Give another with --admin; for a pod's, use kubectl port-forward", base, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.500s", resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}
