//go:build linux

package main

import "context"

// A scaleMeasure measures one row at a peer, once.
type scaleMeasure func(ctx context.Context, s *scaleBench, p peer) ([]metric, error)

// A scaleRow is a row of the report: its figures at each number of pods.
type scaleRow struct {
	name    string // in the benchmark's name
	title   string
	figures []scaleFigure
	measure scaleMeasure // of requests; nil: the row is measured with its servers
	single  string       // why there are no figures of kube-apiserver; "" if there are
}

// A scaleFigure is a figure of a row.
type scaleFigure struct {
	column
	target string // "" is none
}

// Figures that several rows have.
var (
	figureCPU       = scaleFigure{column: column{"CPU ms", unitRequestCPU, 1e-6}}
	figureAllCPU    = scaleFigure{column: column{"CPU ms of all servers", unitAllRequestCPU, 1e-6}}
	figureTime      = scaleFigure{column: column{"time ms", unitP50, 1e-6}}
	figureLists     = scaleFigure{column: column{"lists upstream", unitLaneLists, 1}}
	figureWatches   = scaleFigure{column: column{"watches upstream", unitLaneWatches, 1}}
	figurePeak      = scaleFigure{column: column{"peak RSS MiB", "peak-B", 1.0 / (1 << 20)}}
	figureRSS       = scaleFigure{column: column{"RSS MiB", unitGrown, 1.0 / (1 << 20)}}
	figureOfObjects = scaleFigure{column: column{"× the objects' bytes", unitOfObjects, 1}}
)

// due returns the figure with a target.
func (f scaleFigure) due(target string) scaleFigure {
	f.target = target
	return f
}

const (
	decodedOnce = "it keeps objects decoded, once for all representations: see the row of JSON"
	fillsItself = "it has no lanes, and its watch cache is filled before it is ready"
)

// scaleRows are the rows in the order of the report. Rows with a measure are measured in this order
// too.
var scaleRows = []scaleRow{
	{name: "list-all", title: "LIST all, any state", measure: anyLists(choiceAll, 1),
		figures: []scaleFigure{figureCPU, figureTime}},
	{name: "join-all", title: "WatchList all, one client", measure: joins(choiceAll, one),
		figures: []scaleFigure{figureCPU, {column: column{"time ms", unitWall, 1e-6}}}},
	{name: "join-node", title: "WatchList by node, 20 pods", measure: joins(choiceNode, crowdAt),
		figures: []scaleFigure{figureCPU.due("≤ 0.15; ratio ≤ 0.001; × watchfan ≤ 1.2")}},
	{name: "join-label", title: "WatchList by label, 20 pods", measure: joins(choiceLabel, crowdAt),
		figures: []scaleFigure{figureCPU}},
	{name: "index", title: "Indexes of both", single: "it does not count its indexes apart", measure: indexMemory,
		figures: []scaleFigure{
			{column{"% of the objects' bytes", "index-%", 1}, "≤ 8"}, {column{"indexes", "indexes", 1}, ""},
		}},
	{name: "join-nobody", title: "WatchList by a label that no pod has", measure: joins(choiceNobody, crowdAt),
		figures: []scaleFigure{figureCPU}},
	{name: "join-unequal", title: "WatchList by !=, nothing found", measure: joins(choiceUnequal, crowdAt),
		figures: []scaleFigure{figureCPU}},
	{name: "list-node", title: "LIST by node, 20 pods, any state", measure: anyLists(choiceNode, 4),
		figures: []scaleFigure{figureCPU.due("≤ 0.2"), figureTime}},
	{name: "list-label", title: "LIST by label, 20 pods, any state", measure: anyLists(choiceLabel, 4),
		figures: []scaleFigure{figureCPU.due("≤ 0.2"), figureTime}},
	{name: "lone-node", title: "Lone consistent LIST by node", measure: loneList(choiceNode),
		figures: []scaleFigure{figureTime.due("kube-apiserver's + 50"), figureAllCPU}},
	{name: "lone-unequal", title: "Lone consistent LIST by !=, nothing found", measure: loneList(choiceUnequal),
		figures: []scaleFigure{figureTime.due("kube-apiserver's + 50"), figureAllCPU}},
	{name: "load", title: "Consistent LIST by node under load", measure: loadedLists,
		figures: []scaleFigure{
			figureTime, {column{"p99 ms", unitP99, 1e-6}, "≤ 250"}, {column{"lists/s", unitLists, 1}, ""}, figureAllCPU,
			{column{"proofs in 100 ms", unitProofs, 1}, "≤ 1"}, {column{"lists in 100 ms that prove", unitProofLists, 1}, ""},
			{column{"passed through, of 1", unitPassed, 1}, ""},
		}},
	{name: "memory-json", title: "Memory: JSON", figures: []scaleFigure{figureRSS, figureOfObjects}},
	{name: "memory-protobuf", title: "Memory: protobuf beside it", single: decodedOnce,
		figures: []scaleFigure{figureRSS, figureOfObjects}},
	{name: "memory-metadata", title: "Memory: metadata in JSON beside them", single: decodedOnce,
		figures: []scaleFigure{figureRSS, figureOfObjects}},
	{name: "cold", title: "Joiners by node at a cold lane", single: fillsItself,
		figures: []scaleFigure{
			{column{"all live s", unitLive, 1e-9}, ""}, {column{"filled s", unitFilled, 1e-9}, ""},
			{column{"live, × filled", "x", 1}, "≤ 1.3"}, {column{"all live s, lane filled before", unitWarm, 1e-9}, ""},
			figureLists.due("1"), figureWatches.due("1"),
			{column{"passed through", unitPassed, 1}, "≤ 5"}, {column{"429s", "refused", 1}, ""},
			{column{"attempts that failed", "failed", 1}, ""},
			{column{"CPU ms per joiner", "cpu-ns/watch", 1e-6}, ""}, figurePeak,
		}},
	{name: "first", title: "First replica: from kube-apiserver", single: fillsItself,
		figures: []scaleFigure{
			{column{"ready s", unitReady, 1e-9}, ""}, {column{"CPU s", unitStartCPU, 1e-9}, ""},
			{column{"CPU s of kube-apiserver", unitStartUpstream, 1e-9}, ""}, figurePeak, figureLists, figureWatches,
		}},
	{name: "second", title: "Second replica: from the first", single: fillsItself,
		figures: []scaleFigure{
			{column{"ready s", unitReady, 1e-9}, ""}, {column{"ready, × the first", "x", 1}, "≤ 0.33"},
			{column{"CPU s", unitStartCPU, 1e-9}, ""}, {column{"CPU s of kube-apiserver", unitStartUpstream, 1e-9}, ""},
			{column{"CPU s of the first replica", unitSeedCPU, 1e-9}, ""},
			figurePeak, figureLists.due("0"), figureWatches.due("1"),
		}},
}

// rowNamed returns a row.
func rowNamed(name string) *scaleRow {
	for i := range scaleRows {
		if scaleRows[i].name == name {
			return &scaleRows[i]
		}
	}
	return nil
}
