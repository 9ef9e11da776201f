package proxy

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/watchfan/watchfan/proxy/option"
	"k8s.io/klog/v2"
)

// NewLogger returns the log that o asks for, written to w: constant sentences, with keys and
// values. It is client-go's log from then on.
func (o *Options) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: o.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if o.LogFormat == "json" {
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration { // else a number of nanoseconds
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		handler = slog.NewJSONHandler(w, options)
	}
	log := slog.New(handler)

	klog.SetSlogLogger(log)
	var gate klog.Level                                                            // klog's own, which every klog.V asks
	_ = gate.Set(strconv.Itoa(min(max(-int(o.LogLevel), 0), option.MaxVerbosity))) // a number is no error
	return log
}
