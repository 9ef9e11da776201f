// Package auth identifies clients and decides whether a client may do what its request asks for.
//
// A client authenticates with a bearer token, with a certificate, or through a front proxy that
// names it in headers. kube-apiserver decides what a client may do: auth sends it access reviews,
// remembers the decisions for a few seconds, bounds and shares the reviews that are under way, and
// reviews open watches again.
//
// It knows requests, and kube-apiserver only as something that answers reviews ([APIServer]). It
// knows no cache of objects and no connection.
//
// # Files
//
//	identity.go             a request's identity: front proxy, certificate, token, anonymous; its name on pages
//	websocket_token.go      a token among the subprotocols of a WebSocket
//	user_info.go            a user's name, uid, groups and extra, also from a certificate
//	front_proxy.go          the headers in which front proxies name users
//	client_cas.go           the verification of certificates
//	authorizer.go           one decision: remembered, or asked for; a no that would end open watches is asked for again
//	decision.go             what a decision says, and why
//	any_name.go             one question in place of a review for each name that a token gets
//	access_review.go        the question to kube-apiserver, and how its answer is read
//	review_queue.go         known clients and strangers among the reviews, which take turns (package fairness)
//	known_tokens.go         tokens that kube-apiserver has accepted lately
//	token_owner.go          a token's owner, for the audit log and limits
//	source.go               which identities are one user, in limits, accounts and turns, and which groups it is in
//	watch_grant.go          open watches are reviewed again, and revoked; the next one relies on that
//	certificate_recheck.go  open watches end with their certificates
//	impersonate.go          Impersonate-* headers of users that the proxy impersonates itself
//	auth_options.go         the settings
//
// # Identities
//
// A client of the secure port has the identity that it would have at kube-apiserver. It is found in
// the same order:
//
//	front proxy         the user that a front proxy's headers name   --requestheader-…
//	client certificate  its subject                                  --client-ca-file
//	bearer token        its owner, who need not be known
//	anonymous           no credential                                --anonymous-auth
//
// Tokens. A token comes in Authorization, or among the subprotocols of a WebSocket, where browsers
// can send no other field. It is forwarded in Authorization. Its access reviews are made with the
// token itself (SelfSubjectAccessReview). That takes no right of watchfan's account, and the
// decision does not need the owner's name. Only an audit log and a limit for each user need the
// name. For them, the token is also used to ask for its owner (SelfSubjectReview; see [Owners]).
// auth makes no TokenReview: it would need the right to review everybody's tokens, and
// kube-apiserver would have to believe watchfan when it then impersonates the owner.
//
// Certificates and front proxies. A certificate cannot be forwarded. A user of a certificate or of
// a front proxy is therefore known by name only. Its access reviews are made with watchfan's own
// credential (SubjectAccessReview), and its passed-through requests carry that credential and
// Impersonate-* headers. If such a client sends Impersonate-* headers itself, each value is
// reviewed with the verb impersonate, as kube-apiserver does it. Without --client-ca-file and
// --requestheader-client-ca-file, watchfan's account needs no right for this. With them, it needs to
// create subjectaccessreviews, and to impersonate.
//
// Impersonation at kube-apiserver. From 1.36 on, with the feature gate ConstrainedImpersonation, which
// is beta and on (KEP-5284), who is impersonated has a mode. 1.36 and 1.37 ask the same
// (k8s.io/apiserver pkg/endpoints/filters/impersonation):
//
//	mode             whom                      what the request may say of it   group and resource of the name
//	associated-node  the node of the caller's  the name alone                   authentication.k8s.io nodes, "*"
//	                 pod, by its bound token
//	arbitrary-node   system:node:NAME          the name alone                   authentication.k8s.io nodes
//	serviceaccount   system:serviceaccount:…   the name alone                   authentication.k8s.io serviceaccounts,
//	                                                                            in its namespace
//	user-info        any other name            name, uid, groups, extra         authentication.k8s.io users
//
// The caller must have two kinds of rights in one mode. impersonate-on:MODE:VERB is asked with the
// request's own attributes: resource, subresource, namespace and name, or path. impersonate:MODE is
// asked for the name, and in user-info for each of these as well: authentication.k8s.io groups NAME
// (not in the core group, as before), uids UID, userextras/KEY VALUE. With four groups or values,
// name "*" is asked first. The group system:masters, an empty group, and a key of extra without a
// domain (example.com/KEY) are refused to everybody. A node gets the groups system:nodes and
// system:authenticated, and a service account its own. RBAC has no patterns: "any name" is a rule
// without resourceNames, and each VERB has to be written out.
//
// The mode impersonate is the old one and comes last: the verb impersonate on users, groups and
// serviceaccounts of the core group, and on uids and userextras, allows everything in that name. It
// is all that kube-apiserver before 1.36 knows. A node named by its name alone has no group there.
// kube-apiserver tries the mode first that let the same caller through the last time, and the others
// in this order, and remembers each yes of the first four for 10 s.
//
// So an account must not be asked to be a node by name alone while it may name the group
// system:nodes in the old mode. Package upstream asks for that right; see [UserInfo.Impersonate].
// deploy/ACCOUNT.md says what an account may do with the chart's rules. In the old mode, an account
// that may impersonate every user or group is as good as cluster-admin, and so is every certificate
// that one of the CAs signs.
//
// Anonymous requests are passed through without a credential. A token's requests with Impersonate-*
// headers are passed through too.
//
// The insecure port. A client without a token is the proxy itself, and there is no review. Secrets
// are not served from a cache there: kube-apiserver allows and logs each read of one.
//
// Logs and metrics name the kind of an identity, never the user.
//
// # Reviews
//
// A decision is remembered for as long as kube-apiserver's own delegating servers remember it, 10
// s. A yes and a no have a flag each, --authorization-webhook-cache-…-ttl. Requests that ask the
// same question at the same time share one review. A yes that has been used is reviewed again
// shortly before its time ends. So a client that reads all the time does not wait for a review
// every 10 s. No decision is believed for longer because of that.
//
// A watch that resumes is believed like the open watch that it continues. Some clients end a quiet
// watch every half minute. The yes of its grant stands for at most an interval after it was asked
// for, also when the watch has ended. Any other watch with the same question is reviewed. If
// kube-apiserver does not answer within two seconds, that watch too is believed like an open one:
// for six intervals at most. A TTL of 0 turns this off.
//
// Each token is reviewed separately, once a minute for each resource that it watches. A review
// takes kube-apiserver 0.75 ms (deploy/SIZE.md). One review for all tokens of an owner
// would have to hide from the authorizers what differs between them
// (authentication.kubernetes.io/credential-id, pod-name and node-name in the user's extra), and
// some authorizers may use it.
//
// # Names
//
// A get is reviewed for its name, because an authorizer may decide by it. Of a token that was allowed to get four
// names of a resource within 10 s it is asked, while nobody waits, whether it may get any name: everywhere, and if
// not, in the namespace. The yes is believed and renewed as any other, and spares the reviews of single names. It
// takes two answers to the token itself:
//
//   - A SelfSubjectAccessReview of the same get without a name, in the namespace or in none, is allowed.
//   - A SelfSubjectRulesReview says that no authorizer decides by names: its rules are complete, and one of them has
//     the verb, the group and the resource, or "*", and no resourceNames. About everywhere it is asked with a
//     namespace that cannot exist ("*"). RBAC finds no RoleBinding there, so the rules are those of
//     ClusterRoleBindings, which hold in all namespaces and for objects without one.
//
// Kubernetes' documentation says that rules reviews are for user interfaces, and that access reviews decide. So they
// do here. The rules alone would prove as much in Kubernetes (1.30 to 1.37), because each authorizer of the chain has
// its part in them (k8s.io/apiserver pkg/authorization/union, k8s.io/kubernetes pkg/kubeapiserver/authorizer):
//
//	RBAC         has the rules by which it decides, by no other attribute. It never denies, and a yes is final unless
//	             another denies first. An aggregated role has its rules in itself. A binding to a role that does not
//	             exist gives an evaluationError; the other rules are good all the same
//	ABAC         the same, with its policies for the namespace, or for "*"
//	AlwaysAllow  has "*"; AlwaysDeny has nothing, and leaves the decision to the others
//	Node         is incomplete about nodes, and decides about nobody else
//	webhook      is always incomplete, before or behind the others, whatever its matchConditions say. Nothing else
//	             denies, or allows with conditions (KEP-5681)
//
// But some builds have authorizers that deny and have no part in the rules, as OpenShift's of tokens with scopes. Their
// decision is in the first answer.
//
// A member of the answer that is not known here counts as incomplete. Whatever kube-apiserver says but yes, it is
// remembered for a minute, and names are reviewed one by one. So they are where a webhook authorizes, as in most
// managed clusters. Users of certificates and front proxies are reviewed for each name too: there is no rules review
// of another user.
//
// # Fairness
//
// Known clients do not wait for strangers. A client is known by a token that kube-apiserver has
// accepted lately, by a certificate, or by a front proxy; see reviewQueue. Known tokens have a connection
// to kube-apiserver of their own (package upstream).
//
// # Warnings
//
// kube-apiserver adds Warning headers to every answer because of the client's token, as for a token
// of a Secret that was made for a service account. The answer to a review with that token has them
// too. So a decision keeps them ([Decision.Warnings]), and each answer from a cache has those of its
// own client. A webhook that warns about each creation of a SelfSubjectAccessReview cannot be told
// from that. Decisions about users of certificates and front proxies have none: their reviews are
// made with the proxy's credential.
//
// Extra space before a token gets a Warning as well, because kube-apiserver ignores such a token. No
// header without a token is sent on, so the proxy adds the Warning itself (Identity.Warning).
//
// # Revocation
//
// Open watches are reviewed again each minute (--authorization-recheck-interval). A watch whose
// client may no longer read ends with the reason "revoked", in the log, the metrics and the audit
// log. So does a watch about which kube-apiserver has not answered for six minutes. A no to another
// watch with the same question revokes it at once. The no must be confirmed: a kube-apiserver that
// starts says no to everybody; see Authorizer.answer.
//
// A certificate is verified with each request. An open watch of a certificate's or a front proxy's
// user ends when the certificate has expired, or when its CA is no longer in the file
// (certificate_recheck.go). Watches that are passed through go on, as at kube-apiserver.
//
// # Why not delegated authentication
//
// k8s.io/apiserver has an authenticator that has kube-apiserver review tokens, and an authorizer
// that sends SubjectAccessReviews, with field and label selectors too. Its delegating servers use
// them. They need rights to review tokens and users, and to impersonate everybody, where tokens need
// none here. They make the binary 38 MB larger (v0.37.2), and one decision from memory twice as slow.
//
// They would make one decision for all tokens of a user, where auth makes one for each token. But they
// do not review open watches again, they remove a token from its request instead of forwarding it, and
// they do not bound the reviews that are under way. Most of this package would still be needed. So auth
// follows their rules and does not use their code.
package auth
