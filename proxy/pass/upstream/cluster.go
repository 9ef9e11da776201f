package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Cluster is the cluster that Options lead to, as an operator knows it.
type Cluster struct {
	Context string // of the kubeconfig; "" in a pod
	Server  string // address
	Version string // of kube-apiserver: v1.36.3
	User    string // the kubeconfig's user, as kube-apiserver knows it; "" if it does not say
}

const (
	clusterTimeout  = 10 * time.Second
	maxClusterBytes = 64 << 10 // of an answer
)

// Cluster asks the cluster who it is, and who asks. If no cluster is configured, the error is
// ErrNoCluster. If the configuration is usable, c has a Server, even if there is an error.
func (o *Options) Cluster(ctx context.Context) (c Cluster, err error) {
	cfg, err := o.Config()
	if err != nil {
		return c, err
	}
	if _, loader := o.loader(); loader != nil {
		if raw, err := loader.RawConfig(); err == nil {
			c.Context = cmp.Or(o.Context, raw.CurrentContext)
		}
	}
	u, err := NewUpstream(cfg)
	if err != nil {
		return c, err
	}
	defer u.CloseIdleConnections()
	c.Server = u.Address()
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	var version struct{ GitVersion string }
	if err := u.ask(ctx, http.MethodGet, "/version", "", &version); err != nil {
		return c, err
	}
	c.Version = version.GitVersion
	var review struct {
		Status struct{ UserInfo struct{ Username string } }
	}
	const body = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
	if u.ask(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, &review) == nil { // Kubernetes before 1.28 does not know it
		c.User = review.Status.UserInfo.Username
	}
	return c, nil
}

// ask sends a request with the proxy's own credentials, and decodes the JSON of its answer into v.
func (u *Upstream) ask(ctx context.Context, method, path, body string, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.URL(path, "").String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s has not answered within %s", u.Address(), clusterTimeout)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxClusterBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s to %s %s", u.Address(), resp.Status, method, path)
	}
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(v); err != nil {
		return fmt.Errorf("%s is no kube-apiserver: %s %s: %w", u.Address(), method, path, err)
	}
	return nil
}
