package attack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is one event of a watch.
type event struct {
	typ   string
	rv    string // resourceVersion, of JSON alone
	end   bool   // the bookmark behind the initial events
	beats []beat // one or none
	raw   []byte
}

// initialEnd marks the bookmark behind the initial events.
const initialEnd = "k8s.io/initial-events-end"

var (
	eventHead = regexp.MustCompile(`^\{"type":"([A-Z]+)"`)
	versionOf = regexp.MustCompile(`"resourceVersion":"(\d+)"`)
)

// parseEvent does not decode the object, because there are 200 clients. It looks for what they check.
func parseEvent(content []byte, protobuf bool) (event, error) {
	e := event{raw: content}
	if protobuf {
		var sent metav1.WatchEvent
		if err := sent.Unmarshal(content); err != nil {
			return event{}, err
		}
		e.typ, e.raw = sent.Type, sent.Object.Raw
	} else if m := eventHead.FindSubmatch(content); m != nil {
		e.typ = string(m[1])
	} else {
		return event{}, fmt.Errorf("no event: %.200q", content)
	}
	if v := versionOf.FindSubmatch(e.raw); v != nil {
		e.rv = string(v[1])
	}
	e.end = e.typ == "BOOKMARK" && bytes.Contains(e.raw, []byte(initialEnd))
	e.beats = beatsIn(e.raw, 1)
	return e, nil
}

// parseList returns the updates in a list and its resourceVersion.
func parseList(body []byte) (state []beat, rv string, err error) {
	v := versionOf.FindSubmatch(body) // the list's own comes first
	if v == nil || !json.Valid(body) {
		return nil, "", fmt.Errorf("no list: %.200q", body)
	}
	return beatsIn(body, -1), string(v[1]), nil
}
