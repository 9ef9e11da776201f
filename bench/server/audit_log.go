//go:build linux

package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// An AuditLog is kube-apiserver's audit log of the lists and watches of one resource.
type AuditLog struct {
	policy, path string
	clients      string // the clients' User-Agent: their requests are passed through and not watchfan's own
	read         int64  // bytes of the log that have been counted
}

func NewAuditLog(dir, resource, clients string) (*AuditLog, error) {
	a := &AuditLog{
		policy: filepath.Join(dir, "audit-policy.json"), path: filepath.Join(dir, "audit.log"), clients: clients,
	}
	policy := fmt.Sprintf(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy",`+
		`"omitStages":["ResponseStarted","ResponseComplete","Panic"],"rules":[{"level":"Metadata",`+
		`"verbs":["list","watch"],"resources":[{"group":"","resources":[%q]}]},{"level":"None"}]}`, resource)
	return a, os.WriteFile(a.policy, []byte(policy), 0o600)
}

// Flags returns the flags for devcluster.
func (a *AuditLog) Flags() []string {
	return []string{"--apiserver-arg", "audit-policy-file=" + a.policy, "--apiserver-arg", "audit-log-path=" + a.path}
}

// auditKinds are the kinds of requests, in the order of the report: lanes that fill or follow the
// collection; history; questions how new upstream is, for proofs and once before each replay; lists
// that compare collections; and requests of clients that are passed through.
var AuditKinds = []string{"lanes", "history", "versions", "proof-lists", "passed"}

// Count returns the requests since the last call, by kind.
func (a *AuditLog) Count() (map[string]int, error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(a.read, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	a.read += int64(len(content))
	counts := make(map[string]int)
	for line := range bytes.Lines(content) {
		var e struct{ Verb, RequestURI, UserAgent string }
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		if strings.HasPrefix(e.UserAgent, "watchfan/") {
			counts[auditKind(e.Verb, e.RequestURI)]++
		} else if e.UserAgent == a.clients {
			counts["passed"]++
		}
	}
	return counts, nil
}

// auditKind returns the kind of a request that watchfan makes for itself.
func auditKind(verb, uri string) string {
	switch {
	case verb == "list" && strings.Contains(uri, "resourceVersionMatch=Exact"):
		return "history"
	case verb == "list" && (strings.Contains(uri, "/namespaces/-/") || strings.Contains(uri, "metadata.name%3D-")):
		return "versions"
	case verb == "list":
		return "proof-lists"
	case strings.Contains(uri, "timeoutSeconds=3&") || strings.HasSuffix(uri, "timeoutSeconds=3"):
		return "history"
	}
	return "lanes"
}
