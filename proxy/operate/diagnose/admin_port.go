package diagnose

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// adminPort is a client of a running watchfan's admin port.
type adminPort struct{ url string }

func (a *adminPort) addFlag(flags *pflag.FlagSet) {
	flags.StringVar(&a.url, "admin", "http://127.0.0.1:8002",
		"`URL` of watchfan's admin port; for a pod, run kubectl port-forward POD 8002")
}

// Ask reads the answer of a page of an admin port in JSON into v.
func Ask(admin, path string, query url.Values, v any) error {
	return (&adminPort{admin}).decode(path, query, v)
}

func (a *adminPort) decode(path string, query url.Values, v any) error {
	query.Set("format", "json")
	body, err := a.get(path, query)
	if err != nil {
		return err
	}
	if bytes.Count(body, []byte("{")) > mostObjects { // which take far more than "{}"
		return fmt.Errorf("watchfan at %s answers with more than %d objects", a.url, mostObjects)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("watchfan at %s answers in a form that is not known here (%w): is it of this version?",
			a.url, err)
	}
	return nil
}

func pageCommand(name, short, long, path string) *cobra.Command {
	var from adminPort
	c := &cobra.Command{Use: name, Short: short, Long: long, Args: cobra.NoArgs}
	from.addFlag(c.Flags())
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error { return from.print(c.OutOrStdout(), path, *asJSON) }
	return c
}

// print writes a page.
func (a *adminPort) print(w io.Writer, path string, asJSON bool) error {
	format := "text"
	if asJSON {
		format = "json"
	}
	body, err := a.get(path, url.Values{"format": {format}})
	if err == nil {
		_, err = w.Write(body)
	}
	return err
}

// mostAnswer is the most that is read of an answer, in bytes. mostObjects is how many objects of JSON it may
// have: ten for each of 10,000 watches.
const mostAnswer, mostObjects = 64 << 20, 100_000

var client = &http.Client{CheckRedirect: exchange.NoRedirect}

// get returns the answer of a page. It is safe for a terminal, whoever has answered.
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
	resp, err := client.Do(req)
	var body []byte
	if err == nil {
		defer resp.Body.Close()
		body, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	}
	if err != nil {
		if strings.Contains(err.Error(), "malformed HTTP response") {
			return nil, fmt.Errorf("the server at %s does not speak HTTP without TLS, as watchfan's admin port does: "+
				"give the URL of --admin-port with --admin", base)
		}
		if cause, ok := errors.AsType[*url.Error](err); ok {
			err = cause.Err // without the URL, which the message below has
		}
		return nil, fmt.Errorf("watchfan's admin port does not answer at %s (%w): is watchfan running, and is this its "+
			"--admin-port? Give another URL with --admin; for a pod, run kubectl port-forward", base, err)
	}
	if resp.Header.Get("Server") != serverName {
		return nil, fmt.Errorf("the server at %s is not the admin port of a watchfan (it answers %s): "+
			"give the URL of --admin-port with --admin", base, request.Shown(resp.Status))
	}
	text := request.ShownLines(string(body))
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.500s", request.Shown(resp.Status), strings.TrimSpace(text))
	}
	return []byte(text), nil
}
