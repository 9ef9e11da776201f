package proxytest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// TableAccept is the Accept header of kubectl.
const TableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// DefaultColumns are the column definitions of every resource, unless [Server.SetColumns] changes
// them.
const DefaultColumns = `[{"name":"Name","type":"string"},{"name":"Age","type":"string"}]`

// SetColumns changes the column definitions of all resources, as another version of kube-apiserver
// does. Open streams have sent theirs.
func (s *Server) SetColumns(definitions string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.columns = definitions
}

// rendered returns a line of the stream in the representation that the client asked for. In Tables,
// the first event has the column definitions.
func (st *Stream) rendered(line string) string {
	if !st.tables {
		return line
	}
	table, ok := AsTable(line, st.columns)
	if ok {
		st.columns = "null"
	}
	return table
}

// AsTable returns an event as an event of a watch in Tables. Other lines are returned unchanged, and
// ok is false.
func AsTable(line, columns string) (table string, ok bool) {
	var ev struct {
		Type   string
		Object struct {
			Metadata json.RawMessage
		}
	}
	var meta struct{ Name, ResourceVersion string }
	if json.Unmarshal([]byte(line), &ev) != nil || json.Unmarshal(ev.Object.Metadata, &meta) != nil || meta.ResourceVersion == "" {
		return line, false
	}
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},`+
		`"columnDefinitions":%s,"rows":[{"cells":[%q,"5s"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}}]}}`+"\n",
		ev.Type, meta.ResourceVersion, columns, meta.Name, ev.Object.Metadata), true
}

// wantsTables reports whether an Accept header asks for Tables.
func wantsTables(accept string) bool { return strings.Contains(accept, "as=Table") }
