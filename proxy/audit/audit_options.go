package audit

import "github.com/watchfan/watchfan/proxy/option"

// Options says where the audit log is and what becomes of its files.
type Options struct {
	// AuditLogPath is the file to which each read that is served from a cache is written, and each
	// request that we refuse, as kube-apiserver's audit log has them; see auditLog. "-" is standard
	// output. Empty: none.
	AuditLogPath string
	// AuditLogMode is what happens when the audit log cannot be written, or not at once:
	// AuditBatch, AuditBlocking or AuditBlockingStrict; see auditLog. kube-apiserver's default is
	// blocking.
	AuditLogMode string
	// AuditLogMaxAge is the days that old files of the audit log are kept, AuditLogMaxBackup how
	// many of them are kept, AuditLogMaxSize the megabytes at which a file becomes an old one. 0 is
	// no limit. The defaults are kube-apiserver's.
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
