package enrol

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/operate/logging"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

const usage = `watchfan keeper keeps a ConfigMap, ` + BundleName + `, in each namespace with the label ` + Label + `.
It has the cluster's CA, watchfan's, and the addresses of watchfan's Service. Pods that are enrolled
mount it. The chart runs one keeper if enrol.enabled is true.

It lists and watches namespaces, and ConfigMaps and Services of one name, and applies the ConfigMaps.`

// keeperFlags are a command line.
type keeperFlags struct {
	option.Table
	cluster   upstream.Options
	service   string
	tls       TLSFiles
	logLevel  slog.Level
	logFormat string
}

// Keeper returns the command watchfan keeper. It runs until its context ends.
func Keeper() *cobra.Command {
	var f keeperFlags
	given := option.Like(regexp.MustCompile("."), "is missing: give a file")
	f.cluster.AddTo(&f.Table)
	f.Group("Enrolment")
	f.String(&f.service, "service", "", "`NAMESPACE/NAME` of watchfan's Service", option.Like(
		regexp.MustCompile("^[a-z0-9-]+/[a-z0-9-]+$"), "names no Service: give NAMESPACE/NAME"))
	f.String(&f.tls.Cert, "tls-cert-file", "", "`FILE` with watchfan's certificate, which must be valid for "+Host, given)
	f.String(&f.tls.CA, "tls-ca-file", "", "`FILE` with its CA", given)
	f.Level(&f.logLevel, "least `LEVEL` to log: debug, info, warn or error",
		"`NUMBER` of the level, in place of --log-level")
	f.String(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json", option.OneOf("text", "json"))
	f.SetDefaults()
	c := &cobra.Command{
		Use:     "keeper",
		Short:   "Keep what enrolled pods need in their namespaces",
		Long:    usage,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return f.Check() },
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	c.Flags().AddFlagSet(f.Flags())
	return c
}

func (f *keeperFlags) run(ctx context.Context) error {
	cfg, err := f.cluster.Config()
	if err != nil {
		return err
	}
	log, flush := logging.New(f.logLevel, f.logFormat, os.Stderr)
	defer flush()
	log.Info("Started the keeper", "service", f.service)
	namespace, name, _ := strings.Cut(f.service, "/")
	return keep(ctx, cfg, types.NamespacedName{Namespace: namespace, Name: name}, f.tls, log)
}
