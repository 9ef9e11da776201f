// Package consumers knows who costs what. A consumer ([Name]) is a user and a program: the user whom a credential
// names, and the user agent without versions. It also bounds what consumers may pass through.
//
//	register.go  the consumers: a bounded table, filled where each request ends
//	consumer.go  one consumer, its name without versions, and counts over windows of time
//	cost.go      the model of processor time
//	habit.go     what a consumer reads again and again, and which faults that has
//	budget.go    what may pass through, and whether kube-apiserver suffers
//	report.go    what operators see
//
// It knows requests, identities and exchanges. It knows no cache and no upstream. It keeps no token and nothing
// of an object.
//
// # What counts
//
// A request counts once its handler has returned, with the length of its body. A body of unknown length counts
// as it is sent. A watch from a cache counts in rounds, for which the shards are asked (fanout.Flusher.Inspect),
// and when it ends; so events cost nothing more on their way. A connection that has changed its protocol, as
// for kubectl exec, counts as one request. Clients whose token kube-apiserver has not accepted are strangers,
// and count together: their names are what they like. So do all owners of tokens that are no service
// accounts', for each program, because nobody else knows who they are. All nodes are one user.
//
// There are 512 consumers at most, and 32 programs of one user. When there are as many, a quarter of them count
// among the others from then on: those without watches that have cost least in the last minute. A new one counts
// there until there is room. So no client can fill the table with names, nor slow it down.
//
// # Processor time
//
// A model says what each consumer's requests and events take (cost.go). What a read does in its seat is not
// modelled but measured, by the clock of the thread that it keeps there. Each round divides the time that the
// process has used in these proportions. So the sum is what was measured, with garbage collection and all.
// Following kube-apiserver is a share of its own. `bench guard` compares the shares with what the process uses for
// one consumer alone (bench/README.md has how far they are off).
//
// # Faults
//
// They are what the requests show: lists where a watch would do, lists of the newest state, several watches of
// the same on one connection, whole objects beside their metadata, and JSON where protobuf is offered. That a
// program reads only the metadata of objects, or drops what it gets, cannot be seen here. Nor can informers of
// one process over HTTP/1.1 be told from those of several.
//
// # Budgets
//
// A cache answers 5,000 agents that list all pods as easily as one. What reaches kube-apiserver is what passes
// through, and there are two budgets for it.
//
//	easy  Reads that a cache can answer, and that ask kube-apiserver all the same: they pass through because it answers
//	      them as easily as it proves that the cache is current, or they have that proof made. 900 gets a second do
//	      so, one by one. A consumer with 64 or more clients, as a DaemonSet has, gets 10 a second, and none while it
//	      always asks for more. The others wait for the next quarter of a second, share one or two proofs, and are
//	      answered by the cache, which begins if there is none. This is on by default, because nothing is refused. A
//	      consumer with fewer clients has no such budget: clients that read one object after the other would wait
//	      each time, and be better off without this proxy.
//	new   Reads that no cache can answer, of a consumer that was not seen before. It begins with a few a second, and
//	      the number doubles each minute, up to any number, or is halved while kube-apiserver suffers: a tenth of
//	      its answers are refusals, failures or take a second. More get 429. This is off by default: kube-apiserver
//	      would have answered them, and a normal cluster must never find out the hard way that a program is new.
//	      Who has had the outage turns it on.
//
// Consumers that are seen in the first ten minutes are known: after a restart all are new, and none of them is to
// blame. So a program that began during a restart has no budget. A client's rights are reviewed for each of its
// tokens, whatever its budget, and where a webhook authorizes, for each name that it gets (package auth). Writes have
// no budget. Members of system:masters, and of groups that the operator chooses, have none, and are first when seats
// for cached reads are short.
package consumers
