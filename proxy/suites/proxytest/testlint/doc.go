// Testlint checks the rules by which the tests give the same answer on any machine. Arguments are the
// directories of packages, or of modules with /... for all packages in them.
//
//	go run ./proxy/suites/proxytest/testlint ./...                  # as make test does
//	go run ./proxy/suites/proxytest/testlint -all ./... deploy/deploytest
//
// These are the rules. "Tests" are files _test.go and the packages below proxytest.
//
//	timer     Tests use no timer of package time outside a bubble of testing/synctest.
//	elapsed   Tests compare no elapsed time outside a bubble.
//	deadline  Tests set no deadline below a minute outside a bubble.
//	timeout   Tests open no watch with a timeoutSeconds below 100 outside a bubble.
//	metrics   No package registers metrics for the whole process.
//	random    Tests draw random numbers only from generators with a known seed.
//	port      Tests listen on no port that is chosen before.
//	parallel  A test with parallel subtests is itself parallel.
//
// # Bubbles
//
// A function literal runs in a bubble if it is an argument of synctest.Test or bubble.Run. So does
// a function, a literal in a variable, a field or a parameter, if the package uses it only in
// bubbles, or as an argument of synctest.Test, or as an argument for a parameter that does. Uses
// through interfaces, and those by other packages, are not seen. Therefore exported functions of
// packages that tests share run in no bubble, unless a directive says so, and what nobody uses by
// name does not either.
//
// # Directives
//
// A directive names a rule and gives a reason. It is for the line on which it stands and for the
// next. Behind a function's comment it is for the function, before the package clause for the file,
// and at the end of the package's documentation, in doc.go or doc_test.go, for the package.
//
//	w := open(t, "/pods?watch=1&timeoutSeconds=2") //testlint:allow timeout the end of the watch is tested
//
// # Baseline
//
// The file baseline has the number of findings that are left, by package and rule. A package with
// more of them fails, and so does a package with fewer, until -update has lowered the number.
package main
