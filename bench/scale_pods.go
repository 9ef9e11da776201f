//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net/url"
)

// A large cluster: each node runs 20 pods of different applications, and each release of a service
// has 20 pods on different nodes. With more pods there are more nodes and more releases.
const (
	scalePerNode  = 20
	scaleBlock    = 1000      // pods that fill their nodes
	scaleLabel    = "release" // the label that 20 pods share
	scalePerLabel = 20
)

// scalePod returns pod i of the cluster.
func scalePod(i int) pod {
	const nodes = scaleBlock / scalePerNode // of a block
	return newPod(i).on(scaleNode(i/scaleBlock*nodes+i%nodes)).labelled(scaleLabel, scaleRelease(i/scalePerLabel))
}

func scaleNode(i int) string { return fmt.Sprintf("node-%05d", i) }

func scaleRelease(i int) string { return fmt.Sprintf("r-%05d", i) }

// A scaleChoice returns the pods that client i asks for in a cluster of so many pods.
type scaleChoice func(pods, i int) podSelection

// These are the choices of the rows.
var (
	choiceAll scaleChoice = func(pods, _ int) podSelection { return podSelection{"", pods} }
	// choiceNode is what a kubelet asks for: the pods of its node.
	choiceNode scaleChoice = func(pods, i int) podSelection {
		return podSelection{fieldQuery("spec.nodeName", scaleNode(i%(pods/scalePerNode))), scalePerNode}
	}
	choiceLabel scaleChoice = func(pods, i int) podSelection {
		return podSelection{labelQuery(scaleLabel + "=" + scaleRelease(i%(pods/scalePerLabel))), scalePerLabel}
	}
	// choiceNobody is a label that no pod has.
	choiceNobody scaleChoice = func(int, int) podSelection { return podSelection{labelQuery("nobody=has-it"), 0} }
	// choiceUnequal is a term that no index answers: the pods that do not run. All run.
	choiceUnequal scaleChoice = func(int, int) podSelection {
		return podSelection{"&fieldSelector=" + url.QueryEscape("status.phase!=Running"), 0}
	}
)

// labelQuery returns the query of a label selector.
func labelQuery(selector string) string { return "&labelSelector=" + url.QueryEscape(selector) }

// A podCounter counts the pods in a list in JSON: each has its address once in quotes.
type podCounter struct {
	count int
	tail  []byte // the end of what came, which may be the begin of a mark
}

var podMark = []byte(`"podIP":"`)

// Write implements io.Writer.
func (c *podCounter) Write(p []byte) (int, error) {
	least := len(podMark) - 1
	edge := append(c.tail, p[:min(least, len(p))]...)
	c.count += bytes.Count(edge, podMark) + bytes.Count(p, podMark)
	if len(p) >= least {
		edge = p
	}
	c.tail = append(c.tail[:0], edge[max(len(edge)-least, 0):]...)
	return len(p), nil
}
