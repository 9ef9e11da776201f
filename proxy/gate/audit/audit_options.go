package audit

import "github.com/watchfan/watchfan/proxy/base/option"

// Options configures the audit log and the rotation of its files.
type Options struct {
	// AuditLogPath is the file of the audit log. It receives the reads served from a cache and the
	// requests refused by the proxy, in the form of kube-apiserver's audit log; see Log. "-" is
	// standard output. Empty means no audit log.
	AuditLogPath string
	// AuditLogMode selects what happens if an event cannot be written, or not immediately:
	// AuditBatch, AuditBlocking or AuditBlockingStrict; see Log. kube-apiserver's default is
	// blocking.
	AuditLogMode string
	// AuditLogMaxAge is the number of days to keep old files. AuditLogMaxBackup is the number of
	// old files to keep. AuditLogMaxSize is the size in megabytes at which a file is rotated. 0
	// means no limit. The defaults are kube-apiserver's.
	AuditLogMaxAge, AuditLogMaxBackup, AuditLogMaxSize int
}

func (o *Options) AddTo(t *option.Table) {
	t.Group("Audit")
	t.String(&o.AuditLogPath, "audit-log-path", "", "`FILE` for the audit log of reads from the cache, "+
		"one audit.k8s.io/v1 Event a line; - is standard output (default none)")
	t.String(&o.AuditLogMode, "audit-log-mode", AuditBatch, "`MODE` of writing the audit log: "+
		"batch drops and counts events that are not written in time, blocking writes each event before its response, "+
		"blocking-strict also fails requests whose event cannot be written", option.OneOf(auditModes...))
	t.Int(&o.AuditLogMaxAge, "audit-log-maxage", 366,
		"`DAYS` to keep old files of the audit log; 0 is no limit", option.AtLeast(0))
	t.Int(&o.AuditLogMaxBackup, "audit-log-maxbackup", 100,
		"`NUMBER` of old files of the audit log to keep; 0 is no limit", option.AtLeast(0))
	t.Int(&o.AuditLogMaxSize, "audit-log-maxsize", 100,
		"`MEGABYTES` after which the audit log begins a new file; 0 is never", option.AtLeast(0))
}
