package proxytest

import (
	"errors"
	"fmt"
	"strings"
)

// Owners answers SelfSubjectReviews by token: with a user's name, an HTTP code, or another fault.
// The token "" is watchfan's own.
type Owners map[string]string

// OwnersUpstream returns an upstream that answers for owners. tokenOf returns an identity's token.
func OwnersUpstream[ID any](owners Owners, tokenOf func(ID) string) *FakeUpstream[ID] {
	return &FakeUpstream[ID]{Answer: func(id ID, path string, body []byte) (code int, text string, err error) {
		return owners.answer(tokenOf(id), path, body)
	}}
}

func (o Owners) answer(token, path string, body []byte) (code int, text string, err error) {
	if !strings.HasSuffix(path, "/selfsubjectreviews") ||
		!strings.Contains(string(body), `"kind":"SelfSubjectReview"`) {
		return 500, "", nil
	}
	switch says := o[token]; {
	case says == "unreachable":
		return 0, "", errors.New("connection refused")
	case says == "garbage":
		return 201, `{"kind":`, nil
	case says == "other kind":
		return 201, `{"kind":"Status","status":{"userInfo":{"username":"jane"}}}`, nil
	case says == "nameless":
		return 201, `{"kind":"SelfSubjectReview","status":{"userInfo":{}}}`, nil
	case len(says) == 3:
		fmt.Sscan(says, &code)
		return code, "", nil
	default:
		return 201, `{"kind":"SelfSubjectReview","status":{"userInfo":{"username":"` + says +
			`","uid":"u","groups":["g"],"extra":{"k":["v"]}}}}`, nil
	}
}
