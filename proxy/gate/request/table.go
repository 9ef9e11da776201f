package request

import (
	"net/url"
	"slices"
)

// includeObject reads what the rows of Tables have besides their cells, and reports whether
// kube-apiserver accepts the parameter. Other representations ignore it.
func (req *Request) includeObject(query url.Values) bool {
	include := query.Get("includeObject")
	if include == includeMetadata {
		include = ""
	}
	for i := range req.Accepts {
		if req.Accepts[i].Table == "" {
			continue
		}
		if include != "" && include != IncludeObject && include != IncludeNone {
			return false
		}
		req.Accepts[i].Include = include
	}
	return true
}

// AsTable reports whether the request accepts Tables.
func (req *Request) AsTable() bool {
	return slices.ContainsFunc(req.Accepts, func(c Clause) bool { return c.Table != "" })
}

// unservedTable returns why a list or watch in Tables is not answered here. A lane of Tables keeps no
// rows: they have ages, and are true only when kube-apiserver makes them. So it serves watches that
// begin with the changes after a resourceVersion, as kubectl's do after a list. A list may share
// kube-apiserver's answer with others.
func (req *Request) unservedTable() Reason {
	switch {
	case req.Accepts[0].Table == "":
		return Form
	case req.Verb == "list":
		return ""
	case req.endsAtOnce(), req.SendInitialEvents != nil && !*req.SendInitialEvents:
		return Parameters
	case req.SendInitialEvents != nil, req.ResourceVersion == "", req.ResourceVersion == "0":
		return TableRows
	case req.Accepts[0].Include == IncludeNone:
		return TableNoObjects
	}
	return ""
}
