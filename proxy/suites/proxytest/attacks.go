package proxytest

import (
	"fmt"
	"strings"
)

// Attack is a malformed or hostile request.
type Attack struct {
	Name string
	Send string // the bytes on the wire
	// Want is what watchfan answers: the codes, and whether the connection is then closed, open for
	// another request, or any of both.
	Want string
	// Theirs is what kube-apiserver answers, empty if the same. Why says why watchfan differs.
	Theirs, Why string
}

// WireText returns the bytes that a text stands for: a line end stands for CRLF, ␊ for a bare LF, ␍
// for a bare CR, ␀ for NUL, and AUTH for the lines auth, which hold the client's token where it
// needs one.
func WireText(text, auth string) string {
	return wireBytes.Replace(strings.ReplaceAll(text, "AUTH", auth))
}

var wireBytes = strings.NewReplacer("\n", "\r\n", "␊", "\n", "␍", "\r", "␀", "\x00")

// Attacks returns the attacks of a client that has the header lines auth. Attacks on a cache read
// cachedList, a path with a query.
func Attacks(cachedList, auth string) []Attack {
	wire := func(text string) string { return WireText(text, auth) }
	all := attacks(cachedList, wire)
	for i := range all {
		all[i].Send = wire(all[i].Send)
	}
	return all
}

// attacks is the table, with texts to Send. wire makes bytes of a text.
func attacks(cachedList string, wire func(string) string) []Attack {
	// smuggled must never be answered if it is a part of another request, or comes behind a
	// connection's last request.
	const smuggled = "GET /version HTTP/1.1\nHost: localhost\nAudit-ID: smuggled\nAUTH\n"
	const ( // why watchfan differs
		once       = "what is said twice may be understood in two ways"
		bodyErrors = "kube-apiserver takes it for its own error"
		lineEnds   = "another server may not take a bare LF for a line's end"
		folding    = "RFC 9112, section 5.2, has a server refuse it; another may see two headers"
		trailers   = "these are no trailers (RFC 9110, section 6.5.1)"
		size       = "a connection whose head was longer than 64 KiB holds a MiB, so this is its last request"
		near       = "8 KiB less may be sent on, because the proxy adds fields to it"
		lines      = "kube-apiserver has this limit from 1.38 on"
		early      = "of a head that comes before the answer to the request before it, 16 KiB are read"
		hosts      = "no client has such a host in its URL"
		targets    = "nothing of the API is there"
		versions   = "nothing is said of it"
		lost       = "kube-apiserver takes no notice of Connection, and a proxy must"
		lenient    = "we refuse less: "
	)
	get := func(target, lines string) string {
		return "GET " + target + " HTTP/1.1\nHost: localhost\nAUTH" + lines + "\n"
	}
	post := func(lines, body string) string { // asks for the client's own identity
		return "POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\nHost: localhost\nAUTHContent-Type: application/json\n" + lines + "\n" + body
	}
	lengthOf := func(body string) string { return fmt.Sprintf("Content-Length: %d\n", len(wire(body))) }
	chunkOf := func(body string) string { return fmt.Sprintf("%x\n%s\n0\n\n", len(wire(body)), body) }

	return []Attack{

		// The length of the body.
		{"length and chunks", post("Content-Length: 4\nTransfer-Encoding: chunked\n", "0\n\n"+smuggled), "400 closed", "400 smuggled open", once},
		{"chunks and length", post("Transfer-Encoding: chunked\nContent-Length: 4\n", "0\n\n"+smuggled), "400 closed", "400 smuggled open", once},
		{"length twice", post("Content-Length: 2\nContent-Length: 2\n", "{}"), "400 closed", "201 open", once},
		{"two lengths", post("Content-Length: 2\nContent-Length: 40\n", "{}"+smuggled), "400 closed", "", ""},
		{"two lengths in one line", post("Content-Length: 2, 2\n", "{}"), "400 closed", "", ""},
		{"length with a plus", post("Content-Length: +2\n", "{}"), "400 closed", "", ""},
		{"negative length", post("Content-Length: -2\n", "{}"), "400 closed", "", ""},
		{"length in hex", post("Content-Length: 0x2\n", "{}"), "400 closed", "", ""},
		{"length with an underscore", post("Content-Length: 1_0\n", "{}12345678"), "400 closed", "", ""},
		{"length among blanks", post("Content-Length:  2  \n", "{}"), "201 open", "", ""},
		{"two lengths and a blank", post("Content-Length: 2 2\n", "{}"), "400 closed", "", ""},
		{"empty length", post("Content-Length: \n", ""), "400 closed", "", ""},
		{"length beyond 64 bits", post("Content-Length: 18446744073709551618\n", "{}"), "400 closed", "", ""},
		{"length of 2^63", post("Content-Length: 9223372036854775808\n", "{}"), "400 closed", "", ""},
		{"length, blank before the colon", post("Content-Length : 2\n", "{}"), "400 closed", "", ""},
		{"length with leading zeros", post("Content-Length: 002\n", "{}"), "201 open", "", ""},
		{"chunked twice", post("Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", "0\n\n"), "501 closed", "", ""},
		{"chunked, chunked", post("Transfer-Encoding: chunked, chunked\n", "0\n\n"), "501 closed", "", ""},
		{"identity, chunked", post("Transfer-Encoding: identity, chunked\n", "0\n\n"), "501 closed", "", ""},
		{"identity", post("Transfer-Encoding: identity\n", "0\n\n"), "501 closed", "", ""},
		{"xchunked", post("Transfer-Encoding: xchunked\n", "0\n\n"), "501 closed", "", ""},
		{"gzip, chunked", post("Transfer-Encoding: gzip, chunked\n", "0\n\n"), "501 closed", "", ""},
		{"identity and length", post("Transfer-Encoding: identity\nContent-Length: 2\n", "{}"), "501 closed", "", ""},
		{"chunked behind a vertical tab", post("Transfer-Encoding: \vchunked\n", "0\n\n"), "400 closed", "", ""},
		{"chunked in quotes", post("Transfer-Encoding: \"chunked\"\n", "0\n\n"), "501 closed", "", ""},
		{"CHUNKED", post("TRANSFER-ENCODING: CHUNKED\n", "2\n{}\n0\n\n"), "201 open", "", ""},
		{"chunked, blank before the colon", post("Transfer-Encoding : chunked\n", "0\n\n"+smuggled), "400 closed", "", ""},
		{"chunked, blank before the name", post(" Transfer-Encoding: chunked\n", "0\n\n"+smuggled), "400 closed", "415 400 closed", folding},
		{"chunked, folded", post("Transfer-Encoding:\n chunked\n", "2\n{}\n0\n\n"), "501 closed", "201 open", folding},
		{"chunked, behind a bare CR", post("A: b␍Transfer-Encoding: chunked\n", "0\n\n"+smuggled), "400 closed", "", ""},
		{"chunked, behind a bare LF", post("A: b␊Transfer-Encoding: chunked\n", "2\n{}\n0\n\n"), "400 closed", "201 open", lineEnds},
		{"chunked, in HTTP/1.0", strings.Replace(post("Connection: keep-alive\nTransfer-Encoding: chunked\n", "0\n\n"), "1.1", "1.0", 1), "501 closed", "400 400 closed", once},
		{"Transfer_Encoding", post("Transfer_Encoding: chunked\nContent-Length: 2\n", "{}"), "201 open", "", ""},
		{"a request in the body of a GET", get("/version", lengthOf(smuggled)) + smuggled, "200 any", "", ""},
		{"a request in the chunk of a GET", get("/version", "Transfer-Encoding: chunked\n") + chunkOf(smuggled), "200 any", "", ""},
		{"a request in the body of a cached list", get(cachedList, lengthOf(smuggled)) + smuggled, "200 any", "", ""},
		{"a request in the chunk of a cached list", get(cachedList, "Transfer-Encoding: chunked\n") + chunkOf(smuggled), "200 any", "", ""},
		{"a request in the body of a watch", get(cachedList+"&watch=1&timeoutSeconds=1", lengthOf(smuggled)) + smuggled, "200 any", "", ""}, //testlint:allow timeout the next request waits for the end
		{"type twice", post("Content-Type: application/yaml\nContent-Length: 2\n", "{}"), "400 closed", "201 open", once},

		// Chunks.
		{"chunk longer than 64 bits", post("Transfer-Encoding: chunked\n", "10000000000000002\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk of 2^63 bytes", post("Transfer-Encoding: chunked\n", "8000000000000000\n{}\n0\n\n"), "400 closed", "waits", "there is no such body"},
		{"chunk with many zeros", post("Transfer-Encoding: chunked\n", "0000000000000000000000000000002\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk in C's hex", post("Transfer-Encoding: chunked\n", "0x2\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"negative chunk", post("Transfer-Encoding: chunked\n", "-2\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk with a plus", post("Transfer-Encoding: chunked\n", "+2\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk with an underscore", post("Transfer-Encoding: chunked\n", "1_0\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"blanks in a chunk's extension", post("Transfer-Encoding: chunked\n", "2 ; a = b\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"extension in quotes", post("Transfer-Encoding: chunked\n", "2;a=\"b;c\"\n{}\n0;a=b\n\n"), "201 open", "", ""},
		{"extension in quotes, two lines", post("Transfer-Encoding: chunked\n", "2;a=\"b\nc\"\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk without a size", post("Transfer-Encoding: chunked\n", "\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"blank behind a chunk's size", post("Transfer-Encoding: chunked\n", "2 \n{}\n0\n\n"), "201 open", "", ""},
		{"blank before a chunk's size", post("Transfer-Encoding: chunked\n", " 2\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk with an extension", post("Transfer-Encoding: chunked\n", "2;a=b\n{}\n0\n\n"), "201 open", "", ""},
		{"bare LF in a chunk's extension", post("Transfer-Encoding: chunked\n", "2;a␊{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"bare LF behind a chunk's size", post("Transfer-Encoding: chunked\n", "2␊{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"bare CR in a chunk's extension", post("Transfer-Encoding: chunked\n", "2;a␍b\n{}\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk without its CRLF", post("Transfer-Encoding: chunked\n", "2\n{}0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk longer than it says", post("Transfer-Encoding: chunked\n", "2\n{}x\n0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"chunk that ends in a bare LF", post("Transfer-Encoding: chunked\n", "2\n{}␊0\n\n"), "400 closed", "500 closed", bodyErrors},
		{"last chunk of several zeros", post("Transfer-Encoding: chunked\n", "2\n{}\n000\n\n"), "201 open", "", ""},
		{"giant extension of a chunk", post("Transfer-Encoding: chunked\n", "2;a="+strings.Repeat("b", 8000)+"\n{}\n0\n\n"), "201 open", "500 closed", lenient + "extensions are not kept, however long they are, and the body has 60 s"},

		// Trailers.
		{"token in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nAuthorization: Bearer x\n\n"), "400 closed", "201 open", trailers},
		{"announced token in the trailer", post("Trailer: Authorization\nTransfer-Encoding: chunked\n", "2\n{}\n0\nAuthorization: Bearer x\n\n"), "400 closed", "201 open", trailers},
		{"user in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nX-Remote-User: root\nImpersonate-User: root\n\n"), "201 open", "", ""},
		{"length in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nContent-Length: 100\n\n"), "400 closed", "201 open", trailers},
		{"announced length in the trailer", post("Trailer: Content-Length\nTransfer-Encoding: chunked\n", "2\n{}\n0\nA: b\n\n"), "400 closed", "", ""},
		{"chunks in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nTransfer-Encoding: chunked\n\n"), "400 closed", "201 open", trailers},
		{"host in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nHost: elsewhere\n\n"), "400 closed", "201 open", trailers},
		{"NUL in the trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nA: b␀\n\n"), "400 closed", "500 closed", bodyErrors},
		{"long trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nA: "+strings.Repeat("b", 70000)+"\n\n"), "400 closed", "500 closed", bodyErrors},
		{"malformed trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nno colon\n\n"), "400 closed", "500 closed", bodyErrors},
		{"folded trailer", post("Transfer-Encoding: chunked\n", "2\n{}\n0\nA: b\n c\n\n"), "201 open", "", ""},

		// The lines of the head.
		{"bare LF everywhere", "GET /version HTTP/1.1␊Host: localhost␊AUTH␊\n\n", "400 closed", "200 400 closed", lineEnds},
		{"bare LF to the end", "GET /version HTTP/1.1␊Host: localhost␊AUTH␊␊", "400 closed", "200 400 closed", lineEnds},
		{"bare LF behind the request line", "GET /version HTTP/1.1␊Host: localhost\nAUTH\n", "200 open", "", ""},
		{"bare LF behind a header", "GET /version HTTP/1.1\nHost: localhost␊AUTH\n", "400 closed", "200 open", lineEnds},
		{"bare CR behind a header", "GET /version HTTP/1.1\nHost: localhost␍A: b\nAUTH\n", "400 closed", "", ""},
		{"two CR", "GET /version HTTP/1.1\nHost: localhost␍\nAUTH\n", "400 closed", "", ""},
		{"bare LF in a long head", "GET /version HTTP/1.1␊Host: localhost␊A: " + strings.Repeat("b", 20000) + "␊AUTH␊", "400 closed", "200 open", lineEnds},
		{"bare LF in the second head", get("/version", "") + "GET /version HTTP/1.1␊Host: localhost␊AUTH␊", "200 400 closed", "200 200 open", lineEnds},
		{"bare LF first", "␊GET /version HTTP/1.1\nHost: localhost\nAUTH\n", "200 open", "400 closed", lenient + "RFC 9112, section 2.2, has a server skip it"},
		{"empty line first", "\nGET /version HTTP/1.1\nHost: localhost\nAUTH\n", "200 open", "400 closed", lenient + "RFC 9112, section 2.2, has a server skip it"},
		{"blank before the first header", "GET /version HTTP/1.1\n A: b\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"folded header", get("/version", "A: b\n c\n"), "400 closed", "200 open", folding},
		{"folded with a tab", get("/version", "A: b\n\tc\n"), "400 closed", "200 open", folding},
		{"folded with nothing", get("/version", "A: b\n \n"), "400 closed", "200 open", folding},
		{"no colon", get("/version", "no colon\n"), "400 closed", "", ""},
		{"no name", get("/version", ": b\n"), "400 closed", "", ""},
		{"no value", get("/version", "A:\n"), "200 open", "", ""},
		{"blank in a name", get("/version", "A b: c\n"), "400 closed", "", ""},
		{"blank behind a name", get("/version", "A : b\n"), "400 closed", "", ""},
		{"NUL in a name", get("/version", "A␀: b\n"), "400 closed", "", ""},
		{"NUL in a value", get("/version", "A: b␀\n"), "400 closed", "", ""},
		{"control character in a value", get("/version", "A: b\ac\n"), "400 closed", "", ""},
		{"NUL in a token", "GET /version HTTP/1.1\nHost: localhost\nAuthorization: Bearer ␀hidden\n\n", "400 closed", "", ""},
		{"NUL in a token's name", "GET /version HTTP/1.1\nHost: localhost\nAuthorization␀: Bearer hidden\n\n", "400 closed", "", ""},
		{"a token without a colon", "GET /version HTTP/1.1\nHost: localhost\nAuthorization Bearer hidden\n\n", "400 closed", "", ""},
		{"DEL in a value", get("/version", "A: b\x7fc\n"), "400 closed", "", ""},
		{"name that is not ASCII", get("/version", "Ä: b\n"), "400 closed", "", ""},
		{"value that is not ASCII", get("/version", "A: ä\n"), "200 open", "", ""},
		{"name in quotes", get("/version", "\"A\": b\n"), "400 closed", "", ""},
		{"9000 headers", get("/version", strings.Repeat("A: b\n", 9000)), "200 open", "", ""},
		{"900 headers", get("/version", strings.Repeat("A: b\n", 900)), "200 open", "", ""},
		{"4000 cookies", get("/version", strings.Repeat("Cookie: a=b\n", 4000)), "200 open", "", ""},
		{"header of 70 KB", get("/version", "A: "+strings.Repeat("b", 70000)+"\n"), "200 closed", "200 open", size},
		{"header of 1 MB", get("/version", "A: "+strings.Repeat("b", 1_000_000)+"\n"), "200 closed", "200 open", size},
		{"header of 1 MiB", get("/version", "A: "+strings.Repeat("b", 1<<20)+"\n"), "431 closed", "200 open", near},
		{"header of 2 MiB", get("/version", "A: "+strings.Repeat("b", 2<<20)+"\n"), "431 closed", "", ""},
		{"20,000 headers", get("/version", strings.Repeat("A: b\n", 20000)), "431 closed", "200 open", lines},
		{"800 groups", get(cachedList, "Impersonate-User: a\nImpersonate-Group: system:masters\n"+strings.Repeat("Impersonate-Group: g\n", 800)), "200 open", "", ""},
		{"long head of a POST", post("A: "+strings.Repeat("b", 30000)+"\nExpect: 100-continue\nContent-Length: 2\n", "{}"), "100 201 open", "", ""},
		{"long heads one behind the other", get("/version", "A: "+strings.Repeat("b", 12000)+"\n") + get("/version", "A: "+strings.Repeat("b", 12000)+"\n"), "200 200 open", "", ""},
		{"longer head behind another request", get("/version", "") + get("/version", "A: "+strings.Repeat("b", 30000)+"\n"), "200 431 closed", "200 200 open", early},
		{"URL of 70 KB", get("/version?"+strings.Repeat("b", 70000), ""), "200 closed", "200 open", size},
		{"URL of 30 KB", get("/version?"+strings.Repeat("b", 30000), ""), "200 open", "", ""},

		// The host.
		{"no Host", "GET /version HTTP/1.1\nAUTH\n", "400 closed", "", ""},
		{"no Host in HTTP/1.0", "GET /version HTTP/1.0\nAUTH\n", "200 closed", "", ""},
		{"two Hosts", get("/version", "Host: localhost\n"), "400 closed", "", ""},
		{"empty Host", "GET /version HTTP/1.1\nHost: \nAUTH\n", "400 closed", "200 open", hosts},
		{"Host with a blank", "GET /version HTTP/1.1\nHost: localhost evil\nAUTH\n", "400 closed", "", ""},
		{"Host with a path", "GET /version HTTP/1.1\nHost: localhost/x\nAUTH\n", "400 closed", "", ""},
		{"Host with a user", "GET /version HTTP/1.1\nHost: evil@localhost\nAUTH\n", "400 closed", "", ""},
		{"Host with an open bracket", "GET /version HTTP/1.1\nHost: [::1\nAUTH\n", "400 closed", "200 open", hosts},
		{"Host with a bad port", "GET /version HTTP/1.1\nHost: localhost:http\nAUTH\n", "400 closed", "200 open", hosts},
		{"Host with a tab", "GET /version HTTP/1.1\nHost: local\thost\nAUTH\n", "400 closed", "", ""},
		{"Host in quotes", "GET /version HTTP/1.1\nHost: \"localhost\"\nAUTH\n", "400 closed", "", ""},
		{"Host that is not ASCII", "GET /version HTTP/1.1\nHost: löcalhost\nAUTH\n", "400 closed", "", ""},
		{"Host with two ports", "GET /version HTTP/1.1\nHost: localhost:1:2\nAUTH\n", "400 closed", "200 open", hosts},
		{"Host with an escape", "GET /version HTTP/1.1\nHost: localhost%00\nAUTH\n", "400 closed", "200 open", hosts},

		// The request line.
		{"absolute form", get("http://localhost/version", ""), "200 open", "", ""},
		{"absolute form without a path", get("http://localhost", ""), "400 closed", "404 open", targets},
		{"absolute form with a query for a path", get("http://localhost?x=/version", ""), "400 closed", "404 open", targets},
		{"absolute form with a user", get("http://u:p@localhost/version", ""), "200 open", "", ""},
		{"absolute form without a Host", "GET http://localhost/version HTTP/1.1\nAUTH\n", "400 closed", "", ""},
		{"absolute form with an escape", get("http://%zz/version", ""), "400 closed", "", ""},
		{"opaque form", get("http:version", ""), "400 closed", "404 open", targets},
		{"authority form", get("localhost:443", ""), "400 closed", "404 open", targets},
		{"asterisk", get("*", ""), "400 closed", "404 open", targets},
		{"no slash", get("version", ""), "400 closed", "", ""},
		{"asterisk for OPTIONS", "OPTIONS * HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "200 open", targets},
		{"CONNECT a host", "CONNECT localhost:443 HTTP/1.1\nHost: localhost\nAUTH\n", "405 closed", "404 open", targets},
		{"CONNECT a path", "CONNECT /version HTTP/1.1\nHost: localhost\nAUTH\n", "405 closed", "405 open", targets},
		{"TRACE", "TRACE /version HTTP/1.1\nHost: localhost\nAUTH\n", "405 open", "", ""},
		{"unknown method", "BREW /version HTTP/1.1\nHost: localhost\nAUTH\n", "405 open", "", ""},
		{"method in lower case", "get /version HTTP/1.1\nHost: localhost\nAUTH\n", "405 open", "", ""},
		{"method that is no token", "G:T /version HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"no method", " /version HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"two blanks", "GET  /version HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"tabs for blanks", "GET	/version	HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"blank at the end", "GET /version HTTP/1.1 \nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"blank in the target", "GET /version x HTTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"HTTP/0.9", "GET /version\n\n", "400 closed", "", ""},
		{"HTTP/1.0", "GET /version HTTP/1.0\nHost: localhost\nAUTH\n", "200 closed", "", ""},
		{"HTTP/1.2", "GET /version HTTP/1.2\nHost: localhost\nAUTH\n", "505 closed", "200 open", versions},
		{"HTTP/2.0", "GET /version HTTP/2.0\nHost: localhost\nAUTH\n", "505 closed", "", ""},
		{"HTTP/0.9 spelt out", "GET /version HTTP/0.9\nHost: localhost\nAUTH\n", "505 closed", "", ""},
		{"HTTP/01.1", "GET /version HTTP/01.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"HTTP/1.10", "GET /version HTTP/1.10\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"HTTP/11.1", "GET /version HTTP/11.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"http/1.1", "GET /version http/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"FTP/1.1", "GET /version FTP/1.1\nHost: localhost\nAUTH\n", "400 closed", "", ""},
		{"HTTP/1.0 that stays", "GET /version HTTP/1.0\nHost: localhost\nConnection: keep-alive\nAUTH\n", "200 open", "", ""},
		{"HTTP/1.0 that stays and closes", "GET /version HTTP/1.0\nHost: localhost\nConnection: keep-alive, close\nAUTH\n", "200 closed", "200 open", lost},
		{"cached list in HTTP/1.0", "GET " + cachedList + " HTTP/1.0\nHost: localhost\nConnection: keep-alive\nAUTH\n", "200 open", "", ""},
		{"HTTP/2 at once", "PRI * HTTP/2.0\n\nSM\n\n", "505 closed", "403 closed", versions},
		{"upgrade to h2c", get("/version", "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"), "200 open", "", ""},

		// The path.
		{"two slashes", get("//api/v1/namespaces", ""), "404 open", "", ""},
		{"two slashes in the middle", get("/api//v1/namespaces", ""), "404 open", "", ""},
		{"a dot", get("/api/./v1/namespaces", ""), "404 open", "", ""},
		{"two dots", get("/api/v1/../v1/namespaces", ""), "404 open", "", ""},
		{"escaped dots", get("/api/v1/%2e%2e/v1/namespaces", ""), "404 open", "", ""},
		{"dots for a namespace", get("/api/v1/namespaces/../secrets", ""), "500 open", "", ""},
		{"escaped dots for a namespace", get("/api/v1/namespaces/%2e%2e/configmaps", ""), "500 open", "", ""},
		{"dots for a name", get("/api/v1/namespaces/..", ""), "400 open", "", ""},
		{"escaped slash", get("/api/v1/namespaces%2fdefault", ""), "200 open", "", ""},
		{"escaped slash in a name", get("/api/v1/namespaces/default%2Fconfigmaps", ""), "200 open", "", ""},
		{"escaped NUL", get("/api/v1/namespaces/default%00", ""), "404 open", "", ""},
		{"semicolon", get("/api/v1/namespaces;x=y", ""), "404 open", "", ""},
		{"backslashes", get("/api\\v1\\namespaces", ""), "404 open", "", ""},
		{"backslashes and dots", get("/api/v1/..\\..\\namespaces", ""), "404 open", "", ""},
		{"bad escape", get("/api/v1/%zz", ""), "400 closed", "", ""},
		{"half an escape", get("/api/v1/namespaces/%4", ""), "400 closed", "", ""},
		{"overlong UTF-8", get("/api/v1/%c0%ae%c0%ae/namespaces", ""), "404 open", "", ""},
		{"a fragment", get("/api/v1/namespaces#x", ""), "404 open", "", ""},
		{"a fragment with a query", get("/api/v1/namespaces#x?watch=1", ""), "404 open", "", ""},
		{"slash at the end", get("/api/v1/namespaces/", ""), "200 open", "", ""},
		{"two slashes at the end", get("/api/v1/namespaces//", ""), "200 open", "", ""},
		{"control character", get("/api/v1/\x01", ""), "400 closed", "", ""},
		{"DEL", get("/api/v1/\x7f", ""), "400 closed", "", ""},
		{"URL in the path", get("/http://localhost/version", ""), "404 open", "", ""},
		{"escaped percent", get("/api/v1/namespaces/%252e%252e", ""), "400 open", "", ""},
		{"only dots", get("/..", ""), "404 open", "", ""},
		{"host in the path", get("//localhost://x/version", ""), "404 open", "", ""},

		// The query.
		{"a parameter twice", get(cachedList+"&limit=1&limit=2", ""), "200 open", "", ""},
		{"watch twice", get(cachedList+"&watch=0&watch=1", ""), "200 open", "", ""},
		{"semicolons", get(cachedList+"&limit=1;limit=2", ""), "200 open", "", ""},
		{"bad escape in the query", get(cachedList+"&limit=%zz", ""), "200 open", "", ""},
		{"NUL in the query", get(cachedList+"&labelSelector=%00", ""), "200 open", "", ""},
		{"question marks", get(cachedList+"&labelSelector=a?b?c", ""), "400 open", "", ""},
		{"fragment in the query", get(cachedList+"&limit=1#&limit=2", ""), "400 open", "", ""},
		{"bad number", get(cachedList+"&limit=99999999999999999999", ""), "400 open", "", ""},
		{"giant query", get(cachedList+"&x="+strings.Repeat("a", 20000), ""), "200 open", "", ""},
		{"giant selector", get(cachedList+"&labelSelector="+strings.Repeat("a,", 5000)+"a", ""), "200 open", "", ""},
		{"giant field selector", get(cachedList+"&fieldSelector="+strings.Repeat("metadata.name!=a,", 2000)+"metadata.name!=a", ""), "200 open", "", ""},

		// One behind the other.
		{"behind a watch", get(cachedList+"&watch=1&timeoutSeconds=1", "") + get("/version", ""), "200 200 open", "", ""},                                                                                                //testlint:allow timeout the next request waits for the end
		{"behind a watch, a bad one", get(cachedList+"&watch=1&timeoutSeconds=1", "") + "GET /version HTTP/1.1\nHost: a b\nAUTH\n", "200 400 closed", "", ""},                                                            //testlint:allow timeout the next request waits for the end
		{"behind a passed-through watch", get("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\n") + get("/version", ""), "200 200 open", "", ""}, //testlint:allow timeout the next request waits for the end
		{"behind a watch that closes", get(cachedList+"&watch=1&timeoutSeconds=1", "Connection: close\n") + smuggled, "200 closed", "", ""},                                                                              //testlint:allow timeout the next request waits for the end
		{"twenty at once", strings.Repeat(get("/version", ""), 20), strings.Repeat("200 ", 20) + "open", "", ""},
		{"behind one that closes", get("/version", "Connection: close\n") + smuggled, "200 closed", "", ""},
		{"behind one that closes, among other options", get("/version", "Connection: keep-alive, Close\n") + smuggled, "200 closed", "", ""},
		{"behind one that is refused and closes", "GET /version HTTP/1.1\nHost: localhost\nAuthorization: Bearer nobodys\nConnection: Close\n\n" + smuggled, "401 closed", "", ""},
		{"behind a bad target of nobody", "GET /%zz HTTP/1.1\nHost: localhost\nAuthorization: Bearer nobodys\n\n" + smuggled, "400 closed", "", ""},
		{"behind one that closes and does not", get("/version", "Connection: close\nConnection: keep-alive\n") + smuggled, "200 closed", "", ""},

		// Expectations.
		{"expectation without a body", get("/version", "Expect: 100-continue\n"), "200 open", "", ""},
		{"expectation with a body", post("Expect: 100-continue\nContent-Length: 2\n", "{}"), "100 201 open", "", ""},
		{"expectation in capitals", post("Expect: 100-Continue\nContent-Length: 2\n", "{}"), "100 201 open", "", ""},
		{"odd expectation", get("/version", "Expect: 200-ok\n"), "417 closed", "", ""},
		{"odd expectation with a body", post("Expect: 200-ok\nContent-Length: 2\n", "{}"), "417 closed", "", ""},
		{"two expectations", post("Expect: 100-continue\nExpect: x\nContent-Length: 2\n", "{}"), "417 closed", "100 201 open", once},
		{"list of expectations", post("Expect: 100-continue, x\nContent-Length: 2\n", "{}"), "417 closed", "100 201 open", once},
		{"empty expectation", post("Expect:\nContent-Length: 2\n", "{}"), "201 open", "", ""},
		{"expectation in HTTP/1.0", strings.Replace(post("Expect: 100-continue\nContent-Length: 2\n", "{}"), "1.1", "1.0", 1), "201 closed", "", ""},
		{"expectation and a bad header", post("A b: c\nExpect: 100-continue\nContent-Length: 2\n", "{}"), "400 closed", "", ""},

		// Upgrades.
		{"WebSocket without a key", get(cachedList+"&watch=1", "Connection: Upgrade\nUpgrade: websocket\n"), "400 closed", "", ""},
		{"WebSocket of another version", get(cachedList+"&watch=1", "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="+"\nSec-WebSocket-Version: 99\n"), "400 closed", "", ""},
		{"upgrade of a POST", post("Connection: Upgrade\nUpgrade: websocket\nContent-Length: 2\n", "{}"), "201 open", "", ""},
		{"upgrade to nothing", get("/version", "Connection: Upgrade\n"), "200 open", "", ""},
		{"upgrade without Connection", get("/version", "Upgrade: websocket\n"), "200 open", "", ""},
		{"upgrade to anything", get("/version", "Connection: Upgrade\nUpgrade: foo, bar\n"), "200 open", "", ""},

		// Headers that get lost on the way.
		{"Connection names Authorization", post("Connection: keep-alive, Authorization\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "400 closed", "201 open", lost},
		{"Connection names Impersonate-User", post("Connection: keep-alive, Impersonate-User\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "400 closed", "201 open", lost},
		{"Connection names X-Remote-User", post("Connection: keep-alive, X-Remote-User\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "400 closed", "201 open", lost},
		{"Connection names X-Forwarded-For", post("Connection: keep-alive, X-Forwarded-For\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "400 closed", "201 open", lost},
		{"Connection names Audit-ID", post("Connection: keep-alive, Audit-ID\nContent-Length: 2\n", "{}"), "400 closed", "201 open", lost},
		{"Connection names Accept", get("/version", "Connection: Accept\nAccept: application/yaml\n"), "200 open", "406 open", lost},
		{"Connection names Host", post("Connection: keep-alive, Host\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "201 open", "", ""},
		{"Connection names Content-Length", post("Connection: keep-alive, Content-Length\nImpersonate-User: nobody\nContent-Length: 2\n", "{}"), "201 open", "", ""},
	}
}
