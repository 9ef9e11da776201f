package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

// kube-apiserver adds Warnings to each answer because of the credential of its request, as that of a
// Secret's token. What it answers to the proxy's own credential may be meant for others: for the
// clients of a lane, or for a user whom the proxy impersonates. Such a client must not be sent the
// Warnings about the proxy's credential. A client of the insecure port is the proxy, and must.

// WithoutOwn returns the Warnings of an answer to the proxy's own credential without those that
// concern the credential. Only if there are any, it asks kube-apiserver which these are.
func WithoutOwn(ctx context.Context, server auth.APIServer, warnings []string) ([]string, error) {
	if len(warnings) == 0 {
		return nil, nil
	}
	resp, err := GetOwn(ctx, server, "/version", "", "application/json") // about no resource
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if !authenticated(resp) {
		return nil, fmt.Errorf("get /version: %s", resp.Status)
	}
	return without(warnings, resp.Header.Values("Warning")), nil
}

// authenticated reports whether kube-apiserver has accepted the credential of a request, and so has
// said all that concerns it.
func authenticated(resp *http.Response) bool {
	return resp.StatusCode != http.StatusUnauthorized && resp.StatusCode < http.StatusInternalServerError
}

func without(warnings, own []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return slices.Contains(own, w) })
}

// OwnWarnings returns the Warnings that concern the proxy's credential, as of the last answer to Do.
func (u *Upstream) OwnWarnings() []string {
	if own := u.ownWarnings.Load(); own != nil {
		return *own
	}
	return nil
}

// noteOwnWarnings notes the Warnings of an answer about no resource.
func (u *Upstream) noteOwnWarnings(resp *http.Response) {
	if authenticated(resp) {
		own := resp.Header.Values("Warning")
		u.ownWarnings.Store(&own)
	}
}

// hideOwnWarnings removes the Warnings that concern the proxy's credential from the answer to a
// request in a user's name. If they are not known yet, it removes all.
func (u *Upstream) hideOwnWarnings(h http.Header) {
	own := u.ownWarnings.Load()
	if own != nil {
		h["Warning"] = without(h.Values("Warning"), *own)
	}
	if own == nil || len(h["Warning"]) == 0 {
		delete(h, "Warning")
	}
}
