package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Headers by which one user acts as another (k8s.io/api/authentication/v1). All begin with
// request.ImpersonatePrefix.
const (
	ImpersonateUser        = "Impersonate-User"
	impersonateUID         = "Impersonate-Uid"
	impersonateGroup       = "Impersonate-Group"
	impersonateExtraPrefix = "Impersonate-Extra-"
)

var impersonateHeaders = userHeaders{
	name:   []string{ImpersonateUser},
	uid:    []string{impersonateUID},
	groups: []string{impersonateGroup},
	extra:  []string{impersonateExtraPrefix},
}

// impersonated returns the user that the request asks to act as, exactly as it says; nil if it asks
// for none. The user's name may be missing. (k8s.io/apiserver
// pkg/endpoints/filters/impersonation.)
func impersonated(h exchange.Header) *UserInfo {
	u := impersonateHeaders.read(h)
	if u.Name == "" && u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 {
		return nil
	}
	return u
}

// ActAs returns the identity that a request of id is made as, if the request's Impersonate-*
// headers name another user. The headers of a client with a token are passed through:
// kube-apiserver sees both users and decides.
//
// A user that is known by name only is impersonated already, and kube-apiserver does not allow one
// impersonation on top of another. So ActAs asks kube-apiserver, value by value, whether that user
// may impersonate the wanted one, as kube-apiserver itself would decide. Then the request
// impersonates the wanted user instead. ActAs does not ask for the newer, constrained kinds of
// impersonation: a user that has only those rights is refused.
func (a *Authorizer) ActAs(ctx context.Context, id Identity, h exchange.Header) (Identity, *metav1.Status) {
	if id.User == nil {
		return id, nil
	}
	wanted := impersonated(h)
	switch {
	case wanted == nil:
		return id, nil
	case wanted.Name == "":
		return Identity{}, nil // groups without a user: kube-apiserver refuses them in its own words, whoever asks
	case !wanted.expressible():
		return Identity{}, apistatus.BadRequest("the user to impersonate cannot be passed on in a header")
	}
	var reviews []string
	for _, attr := range impersonation(wanted) {
		q, review := ReviewFor(id, attr)
		d := a.decide(ctx, id, q, review)
		if d.reviewID != "" {
			reviews = append(reviews, d.reviewID)
		}
		switch d.outcome {
		case denied:
			return Identity{}, mayNotImpersonate(id.User, attr)
		case busy:
			return Identity{}, a.TooManyReviews()
		case unclear:
			return Identity{}, apistatus.ServiceUnavailable("kube-apiserver did not say whether this client may impersonate another")
		}
	}
	as := Identity{Kind: id.Kind, User: wanted, By: id.User, Reviews: reviews, From: id.From, certificate: id.certificate}
	return as, nil
}

// impersonation returns everything that a client must be allowed to do to act as u.
func impersonation(u *UserInfo) (all []resourceAttributes) {
	may := func(group, resource, subresource, name string) {
		all = append(all, resourceAttributes{Verb: "impersonate", Group: group, Version: "v1", Resource: resource, Subresource: subresource, Name: name})
	}
	if namespace, name, ok := serviceAccount(u.Name); ok {
		may("", "serviceaccounts", "", name)
		all[0].Namespace = namespace
	} else {
		may("", "users", "", u.Name)
	}
	for _, group := range u.Groups {
		may("", "groups", "", group)
	}
	const authentication = "authentication.k8s.io"
	for key, values := range u.Extra {
		for _, value := range values {
			may(authentication, "userextras", key, value)
		}
	}
	if u.UID != "" {
		may(authentication, "uids", "", u.UID)
	}
	return all
}

// serviceAccount splits the user name of a service account (k8s.io/apiserver
// pkg/authentication/serviceaccount). A name that no service account can have is a user's: whoever
// may impersonate service accounts may not act as that user.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	return namespace, name, len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// mayNotImpersonate is kube-apiserver's refusal (k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters).
func mayNotImpersonate(u *UserInfo, attr resourceAttributes) *metav1.Status {
	resource := attr.Resource
	if attr.Subresource != "" {
		resource += "/" + attr.Subresource
	}
	scope := "at the cluster scope"
	if attr.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", attr.Namespace)
	}
	gr := schema.GroupResource{Group: attr.Group, Resource: attr.Resource}
	st := apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s %q is forbidden: User %q cannot impersonate resource %q in API group %q %s",
		gr, attr.Name, u.Name, resource, attr.Group, scope))
	st.Details = &metav1.StatusDetails{Name: attr.Name, Group: attr.Group, Kind: attr.Resource}
	return st
}

// Impersonate makes h say that the request acts as u. It removes all Impersonate-* headers that h
// had. With byName, a node (IsNode) is named by its name alone, as constrained impersonation wants it.
//
// Nobody else with a node's name is named without groups: kube-apiserver might take that for the node,
// where the verb impersonate alone makes it an authenticated user.
func (u *UserInfo) Impersonate(h http.Header, byName bool) {
	for name := range h {
		if exchange.NameHasPrefix(name, request.ImpersonatePrefix) {
			delete(h, name)
		}
	}
	h.Set(ImpersonateUser, u.Name)
	if byName && u.IsNode() {
		return
	}
	if u.UID != "" {
		h.Set(impersonateUID, u.UID)
	}
	for _, group := range u.Groups {
		h.Add(impersonateGroup, group)
	}
	if len(u.Groups) == 0 && strings.HasPrefix(u.Name, nodePrefix) {
		h.Set(impersonateGroup, groupAuthenticated)
	}
	for key, values := range u.Extra {
		for _, value := range values {
			h.Add(impersonateExtraPrefix+escapeExtraKey(key), value)
		}
	}
}

// escapeExtraKey encodes an extra's key for a header's name, as client-go's transport does. It
// encodes upper-case letters as well, because kube-apiserver makes the name lower-case before it
// decodes it.
func escapeExtraKey(key string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(key) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xf]})
		}
	}
	return b.String()
}

// unescapeExtraKey decodes the part of a header's name behind the prefix, as kube-apiserver does.
func unescapeExtraKey(name string) string {
	name = strings.ToLower(name)
	if key, err := url.PathUnescape(name); err == nil {
		return key
	}
	return name
}
