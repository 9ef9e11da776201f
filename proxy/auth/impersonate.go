package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/valyala/fasthttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/request"
)

// maxImpersonated is how many values a client may act as at once, because each is asked about.
const maxImpersonated = 64

// impersonated returns the user that the request asks to be taken for, exactly as it says, nil if
// for none. Its name may be missing. (k8s.io/apiserver pkg/endpoints/filters/impersonation.)
func impersonated(h *fasthttp.RequestHeader) *UserInfo {
	u := &UserInfo{Extra: make(map[string][]string)}
	u.Name, _ = request.FirstHeader(h, ImpersonateUser)
	u.UID, _ = request.FirstHeader(h, impersonateUID)
	for k, v := range h.All() {
		switch name := string(k); {
		case request.HeaderIs(k, impersonateGroup):
			u.Groups = append(u.Groups, string(v))
		case request.HasPrefixFold(name, impersonateExtraPrefix):
			key := unescapeExtraKey(name[len(impersonateExtraPrefix):])
			u.Extra[key] = append(u.Extra[key], string(v))
		}
	}
	if u.Name == "" && u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 {
		return nil
	}
	return u
}

// ActAs returns who a request of id is to be made as when id may ask for it to be taken for another
// user's. Whoever brings a token asks kube-apiserver, which sees both users. A user that we know by
// name only is impersonated already, and kube-apiserver knows no impersonation on top of another.
// So we ask it, value by value, whether that user may impersonate the wanted one, as it would
// decide for itself, and then impersonate the wanted one in its place. The newer, constrained kinds
// of impersonation are not asked about: who may do only those is refused here.
func (a *Authorizer) ActAs(ctx context.Context, id Identity, h *fasthttp.RequestHeader) (Identity, *metav1.Status) {
	if id.User == nil {
		return id, nil
	}
	wanted := impersonated(h)
	switch {
	case wanted == nil:
		return id, nil
	case wanted.Name == "":
		return Identity{}, nil // groups of nobody: whoever asks, kube-apiserver says in its own words that it can't be
	case !wanted.expressible():
		return Identity{}, apistatus.BadRequest("the user to impersonate cannot be passed on in a header")
	}
	attributes := impersonation(wanted)
	if len(attributes) > maxImpersonated {
		return Identity{}, apistatus.Failure(http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("the user to impersonate has more than %d groups and values", maxImpersonated))
	}
	for _, attr := range attributes {
		switch a.decide(ctx, id, attr).Verdict {
		case verdictNo:
			return Identity{}, mayNotImpersonate(id.User, attr)
		case VerdictBusy:
			return Identity{}, TooManyReviews()
		case verdictNone:
			return Identity{}, apistatus.ServiceUnavailable("kube-apiserver did not say whether this client may impersonate another")
		}
	}
	return Identity{Kind: id.Kind, User: wanted, voucher: id.voucher, By: id.User, From: id.From}, nil
}

// impersonation returns all that one has to be allowed to act as u.
func impersonation(u *UserInfo) []resourceAttributes {
	may := func(group, resource, name string) resourceAttributes {
		return resourceAttributes{Verb: "impersonate", Group: group, Version: "v1", Resource: resource, Name: name}
	}
	const authentication = "authentication.k8s.io"
	user := may("", "users", u.Name)
	if namespace, name, ok := serviceAccount(u.Name); ok {
		user = may("", "serviceaccounts", name)
		user.Namespace = namespace
	}
	all := []resourceAttributes{user}
	for _, group := range u.Groups {
		all = append(all, may("", "groups", group))
	}
	for key, values := range u.Extra {
		for _, value := range values {
			extra := may(authentication, "userextras", value)
			extra.Subresource = key
			all = append(all, extra)
		}
	}
	if u.UID != "" {
		all = append(all, may(authentication, "uids", u.UID))
	}
	return all
}

// serviceAccount splits the user name of a service account (k8s.io/apiserver
// pkg/authentication/serviceaccount).
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

// mayNotImpersonate says no in kube-apiserver's words (k8s.io/apiserver
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
