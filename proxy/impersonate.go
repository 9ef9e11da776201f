package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxImpersonated is how many values a client may act as at once, because each is asked about.
const maxImpersonated = 64

// impersonated returns the user that the request asks to be taken for, exactly as it says, nil if for none. Its name may be missing.
// (k8s.io/apiserver pkg/endpoints/filters/impersonation.)
func impersonated(h *fasthttp.RequestHeader) *userInfo {
	u := &userInfo{extra: make(map[string][]string)}
	u.name, _ = firstHeader(h, impersonateUser)
	u.uid, _ = firstHeader(h, impersonateUID)
	for k, v := range h.All() {
		switch name := string(k); {
		case headerIs(k, impersonateGroup):
			u.groups = append(u.groups, string(v))
		case hasPrefixFold(name, impersonateExtraPrefix):
			key := unescapeExtraKey(name[len(impersonateExtraPrefix):])
			u.extra[key] = append(u.extra[key], string(v))
		}
	}
	if u.name == "" && u.uid == "" && len(u.groups) == 0 && len(u.extra) == 0 {
		return nil
	}
	return u
}

// actAs returns who a request of id is to be made as when id may ask for it to be taken for another user's. Whoever brings a token asks
// kube-apiserver, which sees both users. A user that we know by name only is impersonated already, and kube-apiserver knows no
// impersonation on top of another. So we ask it, value by value, whether that user may impersonate the wanted one, as it
// would decide for itself, and then impersonate the wanted one in its place. The newer, constrained kinds of impersonation are
// not asked about: who may do only those is refused here.
func (a *authorizer) actAs(ctx context.Context, id identity, h *fasthttp.RequestHeader) (identity, *metav1.Status) {
	if id.user == nil {
		return id, nil
	}
	wanted := impersonated(h)
	switch {
	case wanted == nil:
		return id, nil
	case wanted.name == "":
		return identity{}, nil // groups of nobody: whoever asks, kube-apiserver says in its own words that it can't be
	case !wanted.expressible():
		return identity{}, badRequest("the user to impersonate cannot be passed on in a header")
	}
	attributes := impersonation(wanted)
	if len(attributes) > maxImpersonated {
		return identity{}, failure(http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("the user to impersonate has more than %d groups and values", maxImpersonated))
	}
	for _, attr := range attributes {
		switch a.decide(ctx, id, attr).verdict {
		case verdictNo:
			return identity{}, mayNotImpersonate(id.user, attr)
		case verdictBusy:
			return identity{}, tooManyReviews()
		case verdictNone:
			return identity{}, serviceUnavailable("kube-apiserver did not say whether this client may impersonate another")
		}
	}
	return identity{kind: id.kind, user: wanted, voucher: id.voucher, by: id.user, from: id.from}, nil
}

// impersonation returns all that one has to be allowed to act as u.
func impersonation(u *userInfo) []resourceAttributes {
	may := func(group, resource, name string) resourceAttributes {
		return resourceAttributes{Verb: "impersonate", Group: group, Version: "v1", Resource: resource, Name: name}
	}
	const authentication = "authentication.k8s.io"
	user := may("", "users", u.name)
	if namespace, name, ok := serviceAccount(u.name); ok {
		user = may("", "serviceaccounts", name)
		user.Namespace = namespace
	}
	all := []resourceAttributes{user}
	for _, group := range u.groups {
		all = append(all, may("", "groups", group))
	}
	for key, values := range u.extra {
		for _, value := range values {
			extra := may(authentication, "userextras", value)
			extra.Subresource = key
			all = append(all, extra)
		}
	}
	if u.uid != "" {
		all = append(all, may(authentication, "uids", u.uid))
	}
	return all
}

// serviceAccount splits the user name of a service account (k8s.io/apiserver pkg/authentication/serviceaccount).
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

// mayNotImpersonate says no in kube-apiserver's words (k8s.io/apiserver pkg/endpoints/handlers/responsewriters).
func mayNotImpersonate(u *userInfo, attr resourceAttributes) *metav1.Status {
	resource := attr.Resource
	if attr.Subresource != "" {
		resource += "/" + attr.Subresource
	}
	scope := "at the cluster scope"
	if attr.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", attr.Namespace)
	}
	gr := schema.GroupResource{Group: attr.Group, Resource: attr.Resource}
	st := failure(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s %q is forbidden: User %q cannot impersonate resource %q in API group %q %s",
		gr, attr.Name, u.name, resource, attr.Group, scope))
	st.Details = &metav1.StatusDetails{Name: attr.Name, Group: attr.Group, Kind: attr.Resource}
	return st
}
