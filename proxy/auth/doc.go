// Package auth says who a client is, and whether it may do what its request asks for.
//
// Clients show who they are by a token, a certificate or a front proxy's headers. kube-apiserver
// decides what they may do: a token is asked about with that token, a user that is known by name is
// asked about by watchfan's own account. Answers are remembered for a few seconds, reviews are
// shared fairly, and open watches are asked about again.
//
// It knows requests, and an upstream only as something that answers reviews ([Doer]). It knows no
// cache and no connection.
//
// # Identities
//
// Clients of the secure port are who they would be at kube-apiserver, found in the same order:
//
//	front proxy         whom a front proxy's headers name      --requestheader-…
//	client certificate  its subject                            --client-ca-file
//	bearer token        its owner, whoever that is
//	anonymous           nobody in particular                   --anonymous-auth
//
// A token is forwarded as it came. kube-apiserver is asked with that token what its owner may read
// (SelfSubjectAccessReview). That takes no right of watchfan's account, and the decision does not
// need the owner's name. Only an audit log and a limit for each user need the name; then the token
// asks for it too (SelfSubjectReview; see owners). A TokenReview would need the right to review
// everybody's tokens, and kube-apiserver would have to believe watchfan when it then impersonates
// the owner. So there is none.
//
// The price: each token is reviewed separately, once a minute for each resource that it watches. A
// review takes kube-apiserver 0.75 ms (deploy/README.md, Size). One review for each owner would
// have to hide from the authorizers what tells tokens apart
// (authentication.kubernetes.io/credential-id, pod-name and node-name in the user's extra), and
// some may look at it.
//
// Anonymous requests are passed through without a credential. So are a token's requests with
// Impersonate-* headers.
//
// Known clients wait for no stranger. A client is known by a token that kube-apiserver has accepted
// lately, by a certificate, or by a front proxy. Known clients have slots for access reviews of
// their own (reviewQueue), and known tokens a connection to kube-apiserver (Upstream).
//
// Answers are believed for as long as kube-apiserver's own delegating servers believe them, 10 s,
// and open watches are asked about each minute; the --authorization-… flags change that. A watch
// whose client may not read any longer ends for the reason "revoked", in the log, the metrics and
// the audit log.
//
// On the insecure port who brings no token is the proxy itself, and nobody is asked. Secrets are
// not served from a cache there: each read of one is kube-apiserver's to allow and to write down.
//
// A certificate cannot be sent on. For its user, and for whom a front proxy names, we ask with our
// own credential (SubjectAccessReview), and what is passed through goes with our credential and
// Impersonate-* headers. An Impersonate-* header of such a client is allowed value by value, with
// the verb impersonate, as kube-apiserver does it. The proxy's own account then needs, beside what
// it watches:
//
//	apiGroups: [authorization.k8s.io]   resources: [subjectaccessreviews]            verbs: [create]
//	apiGroups: [""]                     resources: [users, groups, serviceaccounts]  verbs: [impersonate]
//	apiGroups: [authentication.k8s.io]  resources: ["*"]                             verbs: [impersonate]    (uids, userextras/KEY)
//
// Who may impersonate every group may act as system:masters: with these rights the proxy's
// credential is as good as cluster-admin's, and whoever can have a certificate signed by one of the
// authorities is believed. Groups may be narrowed by resourceNames, which must then include
// system:authenticated; the members of others are refused by kube-apiserver. Without
// --client-ca-file and --requestheader-client-ca-file none of this is needed.
//
// A certificate is looked at with each request. Its watches, and those of a front proxy's users,
// end once it has expired, or once its authority is no longer in the file; see voucher. Watches
// that are passed through go on, as at kube-apiserver. Logs and metrics say how clients have shown
// who they are, never who.
//
// # Why not delegated authentication
//
// k8s.io/apiserver has for its own delegating servers what identify and authorizer do here: an
// authenticator that has kube-apiserver review tokens, and an authorizer that asks it by
// SubjectAccessReview, with field and label selectors too. Measured with v0.37.2 (go test -bench
// -count=10 -cpu=1 against a server of net/http that answers reviews, a token of 900 bytes, 2 cores
// of an AMD EPYC that had other work; median, and least to most):
//
//	                               k8s.io/apiserver                          here
//	binary                         52.8 MB                                   14.5 MB
//	modules, packages in it        93, 931                                   40, 376
//	one decision from memory       3.8 µs (2.5–5.9) + 2.6 µs (2.4–4.7)       2.6 µs (2.0–2.8) a token's, 1.6 µs (1.6–2.0) a user's
//	rights for clients with token  tokenreviews and subjectaccessreviews,    none
//	                               and impersonate to pass requests on
//
// It would serve a client's several tokens by one decision for each user, where we ask for each
// token. But it ends with a decision: it does not ask again about open watches, it takes a token
// away from its request instead of sending it on, and it does not bound how many reviews are under
// way. What would be left for us is most of what we have. So the rules are learnt from it, and the
// code is not used.
package auth
