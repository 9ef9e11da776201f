package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/watchfan/watchfan/proxy/gate/request"
)

const (
	selfReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviewPath     = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	maxReviewBytes = 1 << 20
	maxReviewID    = 64
)

// accessReview holds the fields that the proxy sends of a SelfSubjectAccessReview or a
// SubjectAccessReview of authorization.k8s.io/v1, with the field names of k8s.io/api. Nothing else
// here needs that package.
type accessReview struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Spec       accessReviewSpec `json:"spec"`
}

type accessReviewSpec struct {
	User   string              `json:"user,omitempty"` // this and the next three are of a SubjectAccessReview only
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`

	ResourceAttributes resourceAttributes `json:"resourceAttributes"`
}

// Question is the SHA-256 of a token, or of an identity and what it wants to do. Maps hold it in place of
// tokens and selectors.
type Question [sha256.Size]byte

// ReviewFor returns the review that asks whether id may do what attributes say, and the question
// that it stands for. Different users and different tokens have different questions.
func ReviewFor(id Identity, attributes resourceAttributes) (Question, []byte) {
	spec := accessReviewSpec{ResourceAttributes: attributes}
	if u := id.User; u != nil {
		spec.User, spec.UID, spec.Groups, spec.Extra = u.Name, u.UID, u.Groups, u.Extra
	}
	review, err := json.Marshal(accessReview{
		APIVersion: "authorization.k8s.io/v1",
		Kind:       reviewKind(id),
		Spec:       spec,
	})
	if err != nil {
		panic(err) // strings, and slices and maps of them, cannot fail
	}
	token := sha256.Sum256([]byte(id.Token))
	return sha256.Sum256(append(token[:], review...)), review
}

// reviewKind is the kind of the review for id.
func reviewKind(id Identity) string {
	if id.User != nil {
		return "SubjectAccessReview"
	}
	return "SelfSubjectAccessReview"
}

// review asks kube-apiserver. A token that it does not accept (401), or whose owner may not even
// ask (403), is denied. If the proxy itself may not ask about a user, the decision is unclear. A yes
// with conditions is a no: see reviewStatus.
func (a *Authorizer) review(ctx context.Context, id Identity, review []byte) (d Decision) {
	as, path := id, selfReviewPath
	if id.User != nil {
		as, path = Identity{Kind: KindOwn}, reviewPath
	}
	defer func() { a.metrics.reviews[d.outcome].Inc() }()
	var reviewed struct {
		Kind   string
		Status reviewStatus
	}
	code, header, err := postReview(ctx, a.server, as, path, review, maxReviewBytes, &reviewed)
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		if as.Kind == KindOwn {
			a.metrics.refused.Inc()
			return Decision{}
		}
		return Decision{outcome: denied, unauthenticated: code == http.StatusUnauthorized}
	case err != nil || reviewed.Kind != reviewKind(id):
		return Decision{}
	}
	d.outcome = denied
	switch status := &reviewed.Status; {
	case status.unknown != "":
		a.metrics.conditional.Inc()
		status.Reason = "the access review depends on " + status.unknown
	case status.Allowed && !status.Denied:
		d.outcome = allowed
	}
	if a.reasons {
		d.reason, d.reviewID = unique.Make(Truncated(reviewed.Status.Reason, maxReason)), reviewID(header)
	}
	if id.User == nil {
		d = d.warned(header.Values("Warning"))
	}
	return d
}

// reviewStatus is the status of an access review (k8s.io/api authorization/v1). A yes may depend on
// conditions that kube-apiserver evaluates with the request (KEP-5681, in no API of 1.37 yet). A cache
// cannot, and has no name for them, so any member that is not known here makes a yes none.
type reviewStatus struct {
	Allowed, Denied bool
	Reason          string
	unknown         string // a member that is not known; "" if there is none
}

func (s *reviewStatus) UnmarshalJSON(b []byte) error {
	type known reviewStatus
	var members map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(b, (*known)(s)), json.Unmarshal(b, &members)); err != nil {
		return err
	}
	for name := range members {
		switch name {
		case "allowed", "denied", "reason", "evaluationError":
		default:
			s.unknown = name
		}
	}
	return nil
}

// reviewID returns the auditID of the review that was answered with header, "" if it has none of the usual
// length: kube-apiserver makes UUIDs.
func reviewID(header http.Header) string {
	id := header.Get("Audit-Id")
	if len(id) > maxReviewID {
		return ""
	}
	return strings.Clone(id)
}

// postReview sends a review as an identity, and decodes the first most bytes of the answer into reviewed.
// err is not nil unless that is a good answer. code is 0 if there is no answer. The Warnings in header
// concern the credential alone.
//
// It reads refusals too: an answer of HTTP/1.1 that is not read costs its connection, and the next
// stranger a TLS handshake. kube-apiserver is told not to warn about fields that an old one does not
// know, because that would be no concern of the client.
func postReview(
	ctx context.Context, server APIServer, as Identity, path string, review []byte, most int64, reviewed any,
) (code int, header http.Header, err error) {
	to := server.URL(path, "fieldValidation=Ignore").String()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(review))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := server.DoAs(as, req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	switch {
	case resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK:
		err = errors.New(resp.Status)
	case err == nil:
		err = json.Unmarshal(body, reviewed)
	}
	return resp.StatusCode, resp.Header, err
}

// resourceAttributes say what a client wants to do, in an access review.
type resourceAttributes struct {
	Namespace     string             `json:"namespace,omitempty"`
	Verb          string             `json:"verb"`
	Group         string             `json:"group,omitempty"`
	Version       string             `json:"version"`
	Resource      string             `json:"resource"`
	Subresource   string             `json:"subresource,omitempty"`
	Name          string             `json:"name,omitempty"`
	FieldSelector selectorAttributes `json:"fieldSelector,omitzero"`
	LabelSelector selectorAttributes `json:"labelSelector,omitzero"`
}

type selectorAttributes struct {
	Requirements []requirementAttributes `json:"requirements"`
}

type requirementAttributes struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// AttributesOf returns the attributes by which kube-apiserver itself would authorize req
// (k8s.io/apiserver pkg/endpoints/filters/authorization.go).
func AttributesOf(req *request.Request) resourceAttributes {
	attributes := resourceAttributes{
		Namespace: req.Namespace,
		Verb:      req.Verb,
		Group:     req.GVR.Group,
		Version:   req.GVR.Version,
		Resource:  req.GVR.Resource,
		Name:      req.ObjectName(),
	}
	if req.LegacyWatch || req.Verb == "get" {
		return attributes
	}
	for _, r := range req.Fields.Requirements() {
		attributes.FieldSelector.add(r.Field, r.Operator, []string{r.Value})
	}
	requirements, _ := req.Labels.Requirements()
	for _, r := range requirements {
		attributes.LabelSelector.add(r.Key(), r.Operator(), r.ValuesUnsorted())
	}
	return attributes
}

// add adds a requirement, unless a review cannot express it (a label's > and <). Without it the
// review asks for more, never for less.
func (s *selectorAttributes) add(key string, op selection.Operator, values []string) {
	r := requirementAttributes{Key: key, Values: values}
	switch op {
	case selection.Equals, selection.DoubleEquals, selection.In:
		r.Operator = "In"
	case selection.NotEquals, selection.NotIn:
		r.Operator = "NotIn"
	case selection.Exists:
		r.Operator, r.Values = "Exists", nil
	case selection.DoesNotExist:
		r.Operator, r.Values = "DoesNotExist", nil
	default:
		return
	}
	slices.Sort(r.Values)
	s.Requirements = append(s.Requirements, r)
}
