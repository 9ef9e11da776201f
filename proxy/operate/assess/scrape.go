package assess

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The metrics that are read. A missing one makes the assessment coarser; see missing.
const (
	longRunning    = "apiserver_longrunning_requests"
	watchEvents    = "apiserver_watch_events_total"
	watchBytes     = "apiserver_watch_events_sizes_sum"
	received       = "apiserver_watch_cache_events_received_total"
	initEvents     = "apiserver_init_events_total"
	listedObjects  = "apiserver_cache_list_returned_objects_total"
	requests       = "apiserver_request_total"
	storedObjects  = "apiserver_resource_objects"
	storedObjects0 = "apiserver_storage_objects" // before Kubernetes 1.34
	processCPU     = "process_cpu_seconds_total"
	processMemory0 = "process_resident_memory_bytes"
	processStart   = "process_start_time_seconds"
	buildInfo      = "kubernetes_build_info"
)

var wanted = []string{longRunning, watchEvents, watchBytes, received, initEvents, listedObjects, requests,
	storedObjects, storedObjects0, processCPU, processMemory0, processStart, buildInfo}

// Bounds of an answer. A large cluster's has some tens of megabytes, nearly all in histograms that are
// not kept.
const (
	maxAnswerBytes = 1 << 30
	maxKeptBytes   = 64 << 20
	maxLineBytes   = 64 << 10
)

// scrape reads an answer of /metrics in Prometheus' text format. It keeps only the lines of wanted
// metrics, so it takes bounded memory. Samples have no type.
func scrape(r io.Reader) (map[string]*dto.MetricFamily, error) {
	var kept bytes.Buffer
	lines := bufio.NewScanner(&io.LimitedReader{R: r, N: maxAnswerBytes})
	lines.Buffer(make([]byte, 0, maxLineBytes), maxLineBytes)
	for lines.Scan() {
		line := lines.Bytes()
		if !isWanted(line) {
			continue
		}
		if kept.Len()+len(line) > maxKeptBytes {
			return nil, fmt.Errorf("the metrics of interest have more than %d MiB", maxKeptBytes>>20)
		}
		kept.Write(line)
		kept.WriteByte('\n')
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("a line has more than %d KiB: these are no metrics of kube-apiserver", maxLineBytes>>10)
	} else if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&kept)
	if err != nil {
		return nil, fmt.Errorf("these are no metrics: %w", err)
	}
	return families, nil
}

// isWanted reports whether a line is a sample of a wanted metric.
func isWanted(line []byte) bool {
	end := bytes.IndexAny(line, "{ \t")
	if end < 0 {
		return false
	}
	for _, name := range wanted {
		if string(line[:end]) == name {
			return true
		}
	}
	return false
}
