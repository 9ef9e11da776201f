// Package statustest tests the status page in a real Chromium, in front of a watchfan under load
// with a real kube-apiserver behind it. It is a module of its own, so that watchfan does not depend
// on the browser's driver.
//
//	make statustest                          installs Chromium if it is missing, and runs the tests
//	make statustest SCREENSHOTS=/tmp/shots   keeps pictures of the page
//	make statustest UPDATE=1                 takes the pictures of deploy/README.md anew
//
// WATCHFAN_BIN and DEVCLUSTER_BIN name the programs if they are not in bin, and CHROMIUM_BIN names
// Chromium. A test without its programs is skipped, and fails where CI is set.
//
// TestStatusPage is one visit (status_test.go): it opens the page once, and each part continues
// where the part before left it. After a part that failed, the rest does not run. "the browser
// complained" quotes the browser's console: an exception, or something that the page's content
// security policy forbids. browser_test.go drives Chromium, main_test.go starts the processes.
package statustest
