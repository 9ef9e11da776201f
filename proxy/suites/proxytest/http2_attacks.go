package proxytest

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/http2"
)

// HTTP2Attack is a malformed or hostile use of HTTP/2. Its streams have odd numbers below
// HTTP2Sentinel.
type HTTP2Attack struct {
	Name string
	Send func(w *HTTP2Wire) error
	Want string // what watchfan does, as HTTP2Wire.Outcome says it; "or" divides what may happen
	// Theirs is what kube-apiserver does, empty if the same. Why says why watchfan differs.
	Theirs, Why string
}

// HTTP2Sentinel is the stream of the request behind an attack.
const HTTP2Sentinel = 999

// HTTP2Attacks returns the attacks of a client with a bearer token.
func HTTP2Attacks(token string) []HTTP2Attack {
	authorization := []string{"authorization", "Bearer " + token}
	ask := func(id uint32, fields ...string) func(*HTTP2Wire) error { // a request with fields and no others
		return func(w *HTTP2Wire) error { return w.Ask(id, true, append(slices.Clone(fields), authorization...)...) }
	}
	fields := func(fields ...string) func(*HTTP2Wire) error { return ask(1, fields...) }
	get := func(more ...string) func(*HTTP2Wire) error {
		return fields(RequestFields("GET", "/version", more...)...)
	}
	// post is a request for the client's own identity.
	post := func(ended bool, chunks []string, more ...string) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) error {
			const own = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
			more := slices.Concat([]string{"content-type", "application/json"}, more, authorization)
			err := w.Ask(1, false, RequestFields("POST", own, more...)...)
			for i, chunk := range chunks {
				err = errors.Join(err, w.WriteData(1, ended && i == len(chunks)-1, []byte(chunk)))
			}
			return err
		}
	}
	body := func(length string, chunks ...string) func(*HTTP2Wire) error {
		if length == "" {
			return post(true, chunks)
		}
		return post(true, chunks, "content-length", length)
	}
	trailed := func(announced string, trailers ...string) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) error {
			return errors.Join(post(false, []string{"{}"}, "trailer", announced)(w), w.Ask(1, true, trailers...))
		}
	}
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, payload string) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) error { return w.WriteRawFrame(kind, flags, stream, []byte(payload)) }
	}
	setting := func(id http2.SettingID, value uint32) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) error { return w.WriteSettings(http2.Setting{ID: id, Val: value}) }
	}
	then := func(all ...func(*HTTP2Wire) error) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) (err error) {
			for _, f := range all {
				err = errors.Join(err, f(w))
			}
			return err
		}
	}
	begin := func(w *HTTP2Wire) error { // a head that continues
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true,
			BlockFragment: w.Encode(RequestFields("GET", "/version", authorization...)...)})
	}
	continued := func(n int) func(*HTTP2Wire) error { // a head of n more frames
		return func(w *HTTP2Wire) error {
			err := begin(w)
			for i := range n {
				err = errors.Join(err, w.WriteContinuation(1, i == n-1, nil))
			}
			return err
		}
	}
	const watch = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"
	open := fields(RequestFields("GET", watch)...)                      // stream 1 stays open
	large := func(path string, more ...string) func(*HTTP2Wire) error { // on stream 3, beside a watch that goes on
		return then(open, func(w *HTTP2Wire) error { return w.AwaitHead(1) }, ask(3, RequestFields("GET", path, more...)...))
	}
	repeated := func(n int, fragment string) func(*HTTP2Wire) error {
		return func(w *HTTP2Wire) error { // a head with n more entries of the table
			block := append(w.Encode(RequestFields("GET", "/version", append(authorization, "x-a", fragment)...)...),
				strings.Repeat("\xbe", n)...) // the newest entry
			return w.AskBlock(1, true, block)
		}
	}
	const ( // why watchfan differs
		reset    = "RFC 9113, section 8.2.2, has it be a stream error"
		hosts    = "two servers may take it for requests to two hosts"
		targets  = "nothing of the API is there"
		methods  = "RFC 9110, section 9.1, has it be a token"
		bodies   = "kube-apiserver takes it for its own error"
		noLength = "what is announced does not come"
		frames   = "RFC 9113, section 6.2, has it be a connection error"
		lines    = "kube-apiserver has this limit from 1.38 on"
		once     = "what is said twice may be understood in two ways"
		onHTTP1  = "it could not be sent on over HTTP/1.1"
		calm     = "CVE-2023-45288: nobody needs so many"
		lenient  = "we refuse less"
		status   = "a client sees why, as over HTTP/1.1"
	)
	return []HTTP2Attack{

		// Fields.
		{"nothing wrong", get(), "200 open", "", ""},
		{"an upper-case name", get("X-Upper", "a"), "reset PROTOCOL_ERROR open", "", ""},
		{"connection", get("connection", "close"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"keep-alive", get("keep-alive", "a"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"transfer-encoding", get("transfer-encoding", "chunked"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"upgrade", get("upgrade", "websocket"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"te: trailers", get("te", "trailers"), "200 open", "", ""},
		{"an empty te", get("te", ""), "200 open", "", ""},
		{"te: Trailers", get("te", "Trailers"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"te: gzip", get("te", "gzip"), "reset PROTOCOL_ERROR open", "400 open", reset},
		{"a name with a space", get("a b", "c"), "reset PROTOCOL_ERROR open", "", ""},
		{"a name with a colon", get("a:b", "c"), "reset PROTOCOL_ERROR open", "", ""},
		{"no name", get("", "c"), "reset PROTOCOL_ERROR open", "", ""},
		{"a value with lines", get("a", "b\r\nc: d"), "reset PROTOCOL_ERROR open", "", ""},
		{"a value with NUL", get("a", "b\x00c"), "reset PROTOCOL_ERROR open", "", ""},
		{"another host", get("host", "elsewhere"), "400 open", "200 open", hosts},
		{"two hosts", get("host", "localhost", "host", "elsewhere"), "400 open", "200 open", hosts},
		{"two tokens", get("authorization", "Bearer other"), "401 open or 401 closed", "", ""},
		{"crumbs of cookies", get("cookie", "a=b", "cookie", "c=d"), "200 open", "", ""},

		// Pseudo-header fields.
		{"no method", fields(":scheme", "https", ":authority", "localhost", ":path", "/version"), "reset PROTOCOL_ERROR open", "", ""},
		{"no scheme", fields(":method", "GET", ":authority", "localhost", ":path", "/version"), "reset PROTOCOL_ERROR open", "", ""},
		{"no path", fields(":method", "GET", ":scheme", "https", ":authority", "localhost"), "reset PROTOCOL_ERROR open", "", ""},
		{"an empty path", fields(RequestFields("GET", "")...), "reset PROTOCOL_ERROR open", "", ""},
		{"no authority", fields(":method", "GET", ":scheme", "https", ":path", "/version"), "200 open", "", ""},
		{"an empty authority", fields(":method", "GET", ":scheme", "https", ":authority", "", ":path", "/version"), "200 open", "", ""},
		{"two paths", fields(RequestFields("GET", "/version", ":path", "/healthz")...), "reset PROTOCOL_ERROR open", "", ""},
		{"two methods", fields(RequestFields("GET", "/version", ":method", "DELETE")...), "reset PROTOCOL_ERROR open", "", ""},
		{"pseudo behind others", fields(":method", "GET", ":scheme", "https", "accept", "*/*", ":path", "/version"), "reset PROTOCOL_ERROR open", "", ""},
		{"an unknown pseudo", fields(RequestFields("GET", "/version", ":unknown", "a")...), "reset PROTOCOL_ERROR open", "", ""},
		{"a status", fields(RequestFields("GET", "/version", ":status", "200")...), "reset PROTOCOL_ERROR open", "", ""},
		{"another scheme", fields(":method", "GET", ":scheme", "ftp", ":authority", "localhost", ":path", "/version"), "reset PROTOCOL_ERROR open", "", ""},
		{"CONNECT with a path", fields(RequestFields("CONNECT", "/version")...), "405 open", "reset PROTOCOL_ERROR open", status},
		{"a path without a slash", fields(RequestFields("GET", "version")...), "400 open", "reset PROTOCOL_ERROR open", status},
		{"a host with a user", fields(":method", "GET", ":scheme", "https", ":authority", "u@localhost", ":path", "/version"), "400 open", "reset PROTOCOL_ERROR open", status},
		{"a host with a path", fields(":method", "GET", ":scheme", "https", ":authority", "localhost/x", ":path", "/version"), "400 open", "200 open", hosts},
		{"CONNECT a host", fields(":method", "CONNECT", ":authority", "localhost:443"), "405 open", "404 open", targets},
		{"CONNECT with a protocol", fields(RequestFields("CONNECT", "/version", ":protocol", "websocket")...), "reset PROTOCOL_ERROR open", "", ""},
		{"half an escape", fields(RequestFields("GET", "/%z")...), "400 open", "reset PROTOCOL_ERROR open", status},
		{"a query with a space", fields(RequestFields("GET", "/version?a b")...), "400 open", "200 open", onHTTP1},
		{"a query with a control character", fields(RequestFields("GET", "/version?\x01")...), "reset PROTOCOL_ERROR open", "", ""},
		{"a query that is not ASCII", fields(RequestFields("GET", "/version?ä")...), "200 open", "", ""},
		{"a path with a space", fields(RequestFields("GET", "/version a")...), "400 open", "404 open", targets},
		{"a path of a proxy", fields(RequestFields("GET", "https://localhost/version")...), "400 open", "reset PROTOCOL_ERROR closed", status},
		{"a path of all", fields(RequestFields("OPTIONS", "*")...), "400 open", "200 open", targets},
		{"an unknown method", fields(RequestFields("G T", "/version")...), "reset PROTOCOL_ERROR open", "405 open", methods},

		// Sizes, beside a watch that goes on.
		{"a path of 140 KB", large("/version?" + strings.Repeat("a", 140_000)), "200 open", "", ""},
		{"a path of 1 MB", large("/version?" + strings.Repeat("a", 1_000_000)), "200 open", "", ""},
		{"a path of 1.1 MB", large("/version?" + strings.Repeat("a", 1_100_000)), "GOAWAY COMPRESSION_ERROR", "", ""},
		{"two fields of 700 KB", large("/version", "a", strings.Repeat("b", 700_000), "c", strings.Repeat("d", 700_000)), "431 open", "", ""},
		{"800 groups", large("/version", append([]string{"impersonate-user", "a"}, slices.Repeat([]string{"impersonate-group", "g"}, 800)...)...), "200 open", "", ""},
		{"20,000 fields", large("/version", slices.Repeat([]string{"x-a", "b"}, 20_000)...), "431 open", "200 open", lines},
		{"a field of 100 KB", get("x-a", strings.Repeat("a", 100_000)), "200 open", "", ""},
		{"2000 fields", get(slices.Repeat([]string{"x-a", "b"}, 2000)...), "200 open", "", ""},
		{"10,000 entries of a table", repeated(10_000, "b"), "200 open", "", ""},
		{"10,000 large entries of a table", repeated(10_000, strings.Repeat("a", 4000)), "431 open", "", ""},
		{"an entry that is not there", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, "\xff\xff\x7f"), "GOAWAY COMPRESSION_ERROR", "", ""},
		{"a table that is too large", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1, "\x3f\xff\xff\x7f"), "GOAWAY COMPRESSION_ERROR", "", ""},
		{"200 CONTINUATION frames", continued(200), "200 open", "", ""},
		{"300 CONTINUATION frames", continued(300), "GOAWAY ENHANCE_YOUR_CALM", "200 open", calm},
		{"100 heads that begin", func(w *HTTP2Wire) (err error) {
			err = begin(w)
			for range 100 {
				err = errors.Join(err, w.WriteContinuation(1, false, []byte(strings.Repeat("\x00\x01a\x01b", 3000))))
			}
			return err
		}, "GOAWAY PROTOCOL_ERROR", "", ""},

		// Bodies.
		{"a body", body("", `{"kind":"SelfSubjectReview",`, `"apiVersion":"authentication.k8s.io/v1"}`), "201 open", "", ""},
		{"a body shorter than its length", body("100", `{}`), "reset PROTOCOL_ERROR open", "500 open", bodies},
		{"a body longer than its length", body("1", `{}`), "reset PROTOCOL_ERROR open", "", ""},
		{"a length that is no number", body("a", `{}`), "400 open", "reset PROTOCOL_ERROR open", status},
		{"a length without a body", get("content-length", "7"), "reset PROTOCOL_ERROR open", "200 open", noLength},
		{"two lengths", post(true, []string{"{}"}, "content-length", "2", "content-length", "3"), "400 open", "201 open", once},
		{"a length with a plus", body("+2", "{}"), "400 open", "reset PROTOCOL_ERROR open", status},
		{"two types", post(true, []string{"{}"}, "content-type", "application/yaml"), "400 open", "201 open", once},
		{"an expectation", post(true, []string{"{}"}, "expect", "100-Continue"), "201 open", "", ""},
		{"another expectation", post(true, []string{"{}"}, "expect", "miracles"), "201 open", "", ""},
		{"trailers", trailed("x-a", "x-a", "b"), "201 open", "", ""},
		{"a pseudo among the trailers", trailed("x-a", ":path", "/"), "reset PROTOCOL_ERROR open", "", ""},
		{"connection among the trailers", trailed("x-a", "connection", "close"), "reset PROTOCOL_ERROR open", "", ""},
		{"a token among the trailers", trailed("authorization", "authorization", "Bearer x"), "201 open", "reset PROTOCOL_ERROR open", lenient + ", and drop them"},
		{"a body shorter than its length, and trailers", then(post(false, []string{"{}"}, "content-length", "100"), func(w *HTTP2Wire) error {
			return w.Ask(1, true, "x-a", "b")
		}), "reset PROTOCOL_ERROR open", "500 open", bodies},
		{"a head behind the end", then(body("", `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}`), func(w *HTTP2Wire) error {
			return w.Ask(1, true, "x-trailer", "a")
		}), "reset STREAM_CLOSED open", "", ""},

		// Streams.
		{"an even stream", func(w *HTTP2Wire) error { return w.Ask(2, true, RequestFields("GET", "/version")...) }, "GOAWAY PROTOCOL_ERROR", "", ""},
		{"an older stream", func(w *HTTP2Wire) error {
			return errors.Join(w.Ask(5, true, RequestFields("GET", "/version", authorization...)...),
				w.Ask(3, true, RequestFields("GET", "/version", authorization...)...))
		}, "GOAWAY PROTOCOL_ERROR", "", ""},
		{"stream 0", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, "\x82"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a head, twice", then(open, open), "reset STREAM_CLOSED open", "", ""},
		{"data of an idle stream", raw(http2.FrameData, 0, 7, "a"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"data of stream 0", raw(http2.FrameData, 0, 0, "a"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"data behind the end", then(open, raw(http2.FrameData, 0, 1, "a")), "reset STREAM_CLOSED open", "", ""},
		{"a reset of an idle stream", raw(http2.FrameRSTStream, 0, 7, "\x00\x00\x00\x08"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a reset of stream 0", raw(http2.FrameRSTStream, 0, 0, "\x00\x00\x00\x08"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a reset that is too short", then(open, raw(http2.FrameRSTStream, 0, 1, "\x00")), "GOAWAY FRAME_SIZE_ERROR", "", ""},
		{"a head that depends on itself", func(w *HTTP2Wire) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1},
				BlockFragment: w.Encode(RequestFields("GET", "/version", authorization...)...)})
		}, "reset PROTOCOL_ERROR open", "", ""},
		{"a stream that depends on itself", raw(http2.FramePriority, 0, 1, "\x00\x00\x00\x01\x00"), "reset PROTOCOL_ERROR open", "", ""},
		{"a promise", raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, "\x00\x00\x00\x02\x82"), "GOAWAY PROTOCOL_ERROR", "", ""},

		// Frames.
		{"a frame of an unknown type", raw(0xfa, 0xff, 1, "abc"), "open", "", ""},
		{"a frame that is too long", raw(http2.FramePing, 0, 0, strings.Repeat("a", 1<<20)), "GOAWAY FRAME_SIZE_ERROR", "", ""},
		{"padding longer than its frame", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPadded, 1, "\xff\x82"), "GOAWAY PROTOCOL_ERROR", "reset PROTOCOL_ERROR open", frames},
		{"CONTINUATION of nothing", raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, "\x82"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"CONTINUATION of another", then(begin, raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3, "")), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a frame within a head", then(begin, raw(http2.FramePing, 0, 0, "12345678")), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"settings that are cut", raw(http2.FrameSettings, 0, 0, "12345"), "GOAWAY FRAME_SIZE_ERROR", "", ""},
		{"a setting twice", func(w *HTTP2Wire) error {
			return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 17}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 18})
		}, "open", "GOAWAY PROTOCOL_ERROR", lenient},
		{"an acknowledgement of nothing", func(w *HTTP2Wire) error { return errors.Join(w.WriteSettingsAck(), w.WriteSettingsAck()) }, "open", "GOAWAY PROTOCOL_ERROR", lenient},
		{"settings of a stream", raw(http2.FrameSettings, 0, 1, ""), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"an acknowledgement with settings", raw(http2.FrameSettings, http2.FlagSettingsAck, 0, "123456"), "GOAWAY FRAME_SIZE_ERROR", "", ""},
		{"a window that is too large", setting(http2.SettingInitialWindowSize, 1<<31), "GOAWAY FLOW_CONTROL_ERROR", "", ""},
		{"frames that are too small", setting(http2.SettingMaxFrameSize, 100), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"push of 2", setting(http2.SettingEnablePush, 2), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"an unknown setting", setting(0xfafa, 7), "open", "", ""},
		{"a ping that is too short", raw(http2.FramePing, 0, 0, "1234567"), "GOAWAY FRAME_SIZE_ERROR", "", ""},
		{"a ping of a stream", raw(http2.FramePing, 0, 1, "12345678"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a window update of 0", raw(http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"an idle stream's window update of 0", raw(http2.FrameWindowUpdate, 0, 7, "\x00\x00\x00\x00"), "reset PROTOCOL_ERROR open", "", ""},
		{"a stream's window update of 0", then(open, raw(http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x00")), "reset PROTOCOL_ERROR open", "", ""},
		{"a window that overflows", raw(http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff"), "GOAWAY FLOW_CONTROL_ERROR", "", ""},
		{"a stream's window that overflows", then(open, raw(http2.FrameWindowUpdate, 0, 1, "\x7f\xff\xff\xff")), "reset FLOW_CONTROL_ERROR open", "", ""},
		{"a window update of an idle stream", raw(http2.FrameWindowUpdate, 0, 7, "\x00\x00\x00\x01"), "GOAWAY PROTOCOL_ERROR", "", ""},
		{"a window update that is too long", raw(http2.FrameWindowUpdate, 0, 0, "12345"), "GOAWAY FRAME_SIZE_ERROR", "", ""},
	}
}
