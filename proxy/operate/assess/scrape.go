package assess

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

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
	return slices.ContainsFunc(wanted, func(m metric) bool { return string(line[:end]) == m.name })
}
