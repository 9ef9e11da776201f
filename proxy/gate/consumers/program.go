package consumers

import (
	"strings"

	"github.com/watchfan/watchfan/proxy/gate/request"
)

// maxProgram is the maximum length of a program's name, in bytes.
const maxProgram = 64

// ProgramOf shortens a user agent to what names a program: without versions, platforms and commits.
// client-go's has the form NAME/VERSION (OS/ARCH) kubernetes/COMMIT[/PART]. The part stays: it tells the
// controllers of one process apart.
//
//	kubelet/v1.37.2 (linux/amd64) kubernetes/abc                        →  kubelet
//	kube-controller-manager/v1.37 (…) kubernetes/abc/leader-election    →  kube-controller-manager/leader-election
//	Go-http-client/2.0                                                  →  Go-http-client
func ProgramOf(agent string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(agent), " ")
	name, _, _ := strings.Cut(first, "/")
	if _, build, ok := strings.Cut(rest, "kubernetes/"); ok {
		if _, part, ok := strings.Cut(build, "/"); ok {
			name += "/" + part
		}
	}
	if name == "" {
		return "(none)"
	}
	if len(name) > maxProgram {
		name = name[:maxProgram]
	}
	return request.Shown(name)
}
