package proxy

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/watchfan/watchfan/proxy/option"
	"k8s.io/klog/v2"
)

// NewLogger returns the log that o describes, written to w. Messages are constant sentences with
// keys and values. client-go uses the same log from then on.
func (o *Options) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: o.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if o.LogFormat == "json" {
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration { // the default is a number of nanoseconds
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		handler = slog.NewJSONHandler(w, options)
	}
	log := slog.New(handler)

	klog.SetSlogLogger(log)
	// Set sets klog's own level, which every klog.V checks. It accepts every number.
	var gate klog.Level
	_ = gate.Set(strconv.Itoa(min(max(-int(o.LogLevel), 0), option.MaxVerbosity)))
	return log
}
