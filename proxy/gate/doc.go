// Package gate decides who asks for what, and whether they may now: it parses requests, knows clients
// and their rights, shares out turns, and records what was answered.
//
// It never knows a cache, and never looks at an object to decide. Tokens that are asked about too
// often, a 403 or a 429, and growing memory begin to be understood here.
//
//	remember   answers remembered for a time, and calls that callers share
//	apistatus  errors in kube-apiserver's form
//	view       parts of the path space that serve the API without some fields
//	request    a request's parameters, parsed once
//	fairness   fair turns at processors and at costly requests to kube-apiserver
//	auth       clients' identities and permissions
//	audit      the audit log
//	admission  the limits on watches, and what is given back when memory is short
//	consumers  who costs what, and the budgets of new programs
package gate
