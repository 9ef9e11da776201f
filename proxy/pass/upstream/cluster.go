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

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

// Cluster is the cluster that Options lead to, as an operator knows it.
type Cluster struct {
	Context string // of the kubeconfig; "" in a pod
	Server  string // address
	Version string // of kube-apiserver: v1.36.3
	User    string // the kubeconfig's user, as kube-apiserver knows it; "" if it does not say
	// Whom that user may act as, and by which verb, a line for each way. Empty: nobody.
	ActsAs []string
}

const (
	clusterTimeout  = 10 * time.Second
	maxClusterBytes = 1 << 20 // of an answer

	selfSubjectReviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	selfSubjectReviewBody = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`
)

// selfSubjectReview is one of authentication.k8s.io/v1.
type selfSubjectReview struct {
	Status struct{ UserInfo auth.UserInfo }
}

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
	var review selfSubjectReview
	// Kubernetes before 1.28 does not know it.
	if u.ask(ctx, http.MethodPost, selfSubjectReviewPath, selfSubjectReviewBody, &review) == nil {
		c.User = review.Status.UserInfo.Name
	}
	c.ActsAs, err = u.actsAs(ctx, c.Version)
	if err != nil {
		c.ActsAs = []string{"unknown: " + err.Error()}
	}
	return c, nil
}

// ask sends a request with the proxy's own credentials, and decodes the JSON of its answer into v.
func (u *Upstream) ask(ctx context.Context, method, path, body string, v any) error {
	return u.askAs(ctx, auth.Identity{Kind: auth.KindOwn}, method, path, body, v)
}

func (u *Upstream) askAs(ctx context.Context, id auth.Identity, method, path, body string, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, u.URL(path, "").String(), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.DoAs(id, req)
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
