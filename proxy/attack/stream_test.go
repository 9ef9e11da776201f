package attack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// event is one event of a watch.
type event struct {
	typ   string
	rv    string // resourceVersion, of JSON alone
	end   bool   // the bookmark behind the initial events
	beats []beat // one or none
	raw   []byte
}

// eventReader reads the events of a watch.
type eventReader struct {
	protobuf bool
	in       *proxytest.EventReader
}

func newEventReader(protobuf bool, body io.Reader) *eventReader {
	return &eventReader{protobuf, proxytest.NewEventReader(body, protobuf)}
}

// next returns the next event. io.EOF is a proper end.
func (r *eventReader) next() (event, error) {
	content, err := r.in.Next()
	if err != nil {
		return event{}, err
	}
	if !r.protobuf {
		return parseLine(content)
	}
	var sent metav1.WatchEvent
	if err := sent.Unmarshal(content); err != nil {
		return event{}, err
	}
	return newEvent(sent.Type, sent.Object.Raw), nil
}

// initialEnd marks the bookmark behind the initial events.
const initialEnd = "k8s.io/initial-events-end"

func newEvent(typ string, object []byte) event {
	return event{typ: typ, raw: object, end: typ == "BOOKMARK" && bytes.Contains(object, []byte(initialEnd)), beats: beatsIn(object, 1)}
}

var (
	eventHead = regexp.MustCompile(`^\{"type":"([A-Z]+)"`)
	versionOf = regexp.MustCompile(`"resourceVersion":"(\d+)"`)
)

// parseLine does not decode the object, because there are 200 clients. It looks for what they
// check.
func parseLine(line []byte) (event, error) {
	m := eventHead.FindSubmatch(line)
	if m == nil {
		return event{}, fmt.Errorf("no event: %.200q", line)
	}
	e := newEvent(string(m[1]), line)
	if v := versionOf.FindSubmatch(line); v != nil {
		e.rv = string(v[1])
	}
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
