package statustest

import (
	_ "embed"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	accounts   = "/api/v1/namespaces/default/serviceaccounts"

	labelled   = 6  // watchers of the ConfigMaps that a label selects
	unlabelled = 12 // of all of them
	ofAccounts = 4
	ofPods     = 3 // as protobuf
)

// visit is one person's visit to the page.
type visit struct {
	*tab
	all       *testing.T // of which tab.t is a part
	browser   *browser
	w         *watchfan
	delivered atomic.Int64 // events that clients were sent
}

// TestStatusPage is one visit, from the first look to the end of the program. Each part continues
// where the part before left the page.
func TestStatusPage(t *testing.T) {
	b := startBrowser(t)
	w := startWatchfan(t, startCluster(t), "-1")
	for path, body := range map[string]string{
		configMaps: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"busy","labels":{"app":"a"}},` +
			`"data":{"n":"0"}}`,
		accounts: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"quiet"}}`,
	} {
		if err := w.write(http.MethodPost, path, body); err != nil {
			t.Fatal(err)
		}
	}
	v := &visit{tab: b.open(t, "http://"+w.admin+"/", ""), all: t, browser: b, w: w}
	v.width(1280, 900)
	v.until("an answer", `document.querySelector("#link-text").textContent === "Live"`)
	w.watch(t, unlabelled, configMaps+"?watch=true", "application/json", &v.delivered)
	w.watch(t, labelled, configMaps+"?watch=true&labelSelector=app%3Da", "application/json", &v.delivered)
	w.watch(t, ofAccounts, accounts+"?watch=true", "application/json", &v.delivered)

	for _, part := range []struct {
		name string
		test func(*testing.T, *visit)
	}{
		{"counts", testCounts},
		{"rates", testRates},
		{"history", testHistory},
		{"self-checks", testSelfChecks},
		{"consumers", testConsumers},
		{"keyboard", testKeyboard},
		{"light and dark", testThemes},
		{"narrow", testNarrow},
		{"a stalled client", testStalled},
		{"reduced motion", testReducedMotion},
		{"stale", testStale},
		{"policy", testPolicy},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			v.t = t
			part.test(t, v)
			v.quiet()
			got := eval[[]string](v.tab,
				`document.body.innerText.match(/.*(NaN|undefined|null|Infinity|Invalid|\[object).*/g) ?? []`)
			if len(got) > 0 {
				t.Errorf("the page says %q", got)
			}
		})
		if !ok {
			return
		}
	}
	t.Run("text from outside", func(t *testing.T) { testText(t, b, w) })
	t.Run("refused", func(t *testing.T) { testRefused(t, b, w) })
	t.Run("restart", func(t *testing.T) { v.t = t; testRestart(t, v) })
}

// text returns the text of the first element that a selector finds.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, `document.querySelector(`+strconv.Quote(selector)+`).textContent`)
}

// value returns the number that a plot shows, without its unit.
func (v *visit) value(plot string) float64 {
	v.t.Helper()
	text := v.text("#plot-" + plot + " .value span")
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || math.IsNaN(n) {
		v.t.Fatalf("%s is %q", plot, text)
	}
	return n
}

// rows returns the first cells of each lane's row, as "configmaps v1 · json|Synced|18|2". The lane
// of APIServices, which watchfan follows for itself, is left out.
func (v *visit) rows() []string {
	v.t.Helper()
	rows := eval[[]string](v.tab, `[...document.querySelectorAll("tr.lane")].map((row) => [
		row.querySelector("strong").textContent + " " + row.querySelector("small").textContent,
		row.querySelector(".badge span:last-child").textContent,
		row.cells[2].textContent, row.cells[3].textContent].join("|"))`)
	return slices.DeleteFunc(rows, func(row string) bool { return strings.HasPrefix(row, "apiservices ") })
}

// testCounts: the page shows how many clients and lanes there are, and follows changes.
func testCounts(t *testing.T, v *visit) {
	await := func(clients float64, want ...string) {
		t.Helper()
		eventually(t, "counts", func() error {
			if got, rows := v.value("clients"), v.rows(); got != clients || !slices.Equal(rows, want) {
				return fmt.Errorf("got %v clients, lanes %q, want %v, %q", got, rows, clients, want)
			}
			return nil
		})
	}
	await(22, "configmaps v1 · json|Synced|18|2", "serviceaccounts v1 · json|Synced|4|1")
	v.w.watch(v.all, ofPods, "/api/v1/pods?watch=true", "application/vnd.kubernetes.protobuf", new(atomic.Int64))
	await(25, "configmaps v1 · json|Synced|18|2", "serviceaccounts v1 · json|Synced|4|1",
		"pods v1 · protobuf|Synced|3|1")
	for selector, want := range map[string]string{
		"title":   `^watchfan$`,
		"#story":  `^25 watches are served from \d upstream watches: kube-apiserver has (1\d|2[0-4]) fewer\.$`,
		"#facts":  `^kube-apiserver at https://127\.0\.0\.1:\d+ · [\d.]+ of \d+ processors? · [\d.]+ MiB of memory$`,
		"#checks": `resident-resources ok: the caches that are always kept are filled`,
		"main":    `A lane is one resource in one encoding\.`,
	} {
		if got := v.text(selector); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s is %q, want %q", selector, got, want)
		}
	}
	ways := eval[[]string](v.tab, `[...document.querySelectorAll("#ways-list > div")].map((d) => d.innerText.replace("\n", ": "))`)
	for _, want := range []string{"Over HTTP/1.1: 25 watches", "Over HTTP/2: 0 streams", "Over WebSocket: 0 watches", "As json: 22 watches",
		"As protobuf: 3 watches", "Compressed: 25 watches with gzip"} {
		if !slices.Contains(ways, want) {
			t.Errorf("got %q, want %q", ways, want)
		}
	}
}

// testConsumers: the page shows who costs what, with as many watches as there are.
func testConsumers(t *testing.T, v *visit) {
	eventually(t, "consumers", func() error {
		shown := eval[[]string](v.tab, `[...document.querySelectorAll("#consumers-part:not([hidden]) li")].map((l) => l.innerText)`)
		for _, c := range shown {
			if regexp.MustCompile(`^.+ · .+ · \d+m CPU, alone \d+m\n.* requests/s, .* of them to kube-apiserver · .*/s · 25 watches · `).MatchString(c) {
				return nil
			}
		}
		return fmt.Errorf("the page shows %q", shown)
	})
}

// points returns the number of points on a plot's line.
func (v *visit) points(plot string) int {
	v.t.Helper()
	return eval[int](v.tab,
		`(document.querySelector("#plot-`+plot+` .line").getAttribute("d").match(/[ML]/g) || []).length`)
}

// testRates: the page shows what clients receive while they receive it. Its plots gain a point with
// each answer, and in the end no event is missing.
func testRates(t *testing.T, v *visit) {
	if got := v.value("deliveries"); got != 0 {
		t.Errorf("got %v deliveries a second before there is load", got)
	}
	stop := v.w.load(t, 20, configMaps+"/busy")
	eventually(t, "load", func() error {
		if got := v.value("deliveries"); got < 100 {
			return fmt.Errorf("%v deliveries a second", got)
		}
		return nil
	})
	const seconds = 6
	points, delivered, shown := v.points("deliveries"), v.delivered.Load(), make(map[string]float64)
	perEvent := map[string]float64{"deliveries": 1, "upstream": 1. / (labelled + unlabelled), "passed": 1. / (labelled + unlabelled)}
	for range seconds {
		time.Sleep(time.Second)
		for plot := range perEvent {
			shown[plot] += v.value(plot)
		}
	}
	received := float64(v.delivered.Load() - delivered)
	for plot, share := range perEvent {
		if want := received * share; math.Abs(shown[plot]-want) > want/4 {
			t.Errorf("plot %s showed %.0f in %d seconds, there were %.0f", plot, shown[plot], seconds, want)
		}
	}
	if got := v.points("deliveries") - points; got < seconds-2 || got > seconds+2 {
		t.Errorf("the plot has %d more points after %d seconds", got, seconds)
	}
	got := v.text("#plot-latency .value")
	if !strings.HasSuffix(got, "s") {
		t.Errorf("got latency %q", got)
	}
	stop()
	eventually(t, "no load", func() error {
		got, err := v.w.deliveredEvents()
		if want := v.delivered.Load(); err == nil && got != want {
			err = fmt.Errorf("%d events delivered, clients have %d", got, want)
		}
		if shown := v.value("deliveries"); err == nil && shown != 0 {
			err = fmt.Errorf("the page shows %v deliveries a second", shown)
		}
		return err
	})
}

// testHistory: a page that is opened later shows what has been before, with the same values.
func testHistory(t *testing.T, v *visit) {
	const longAgo = `Math.round((performance.now() - plots.find((p) => p.id === "deliveries").points[0].at) / 1000)`
	const most = `Math.max(...plots.find((p) => p.id === "deliveries").points.map((p) => p.value ?? 0))`
	p := v.browser.open(t, "http://"+v.w.admin+"/statusz", "")
	p.until("the history", `(document.querySelector("#plot-deliveries .line").getAttribute("d") ?? "").length > 100`)
	old, first := eval[int](p, longAgo), eval[int](v.tab, longAgo)
	if old < first-3 {
		t.Errorf("the new page begins %d s ago, this one %d s ago", old, first)
	}
	if got, want := eval[float64](p, most), eval[float64](v.tab, most); math.Abs(got-want) > want/2 {
		t.Errorf("the highest rate was %v, here %v", got, want)
	}
	for _, plot := range []string{"processors", "memory", "clients", "latency"} {
		if got := eval[string](p, `document.querySelector("#plot-`+plot+` .line").getAttribute("d")`); len(got) < 20 {
			t.Errorf("plot %s is %q", plot, got)
		}
	}
	p.quiet()
}

// testSelfChecks: the page says when each lane was compared with kube-apiserver, and where it was
// filled from.
func testSelfChecks(t *testing.T, v *visit) {
	const row = `[...document.querySelectorAll("tr.lane")].find((row) => row.innerText.includes("configmaps"))`
	v.until("a self-check", row+`.cells[9].textContent === "equal"`)
	if got := eval[string](v.tab, row+`.cells[8].textContent`); got != "kube-apiserver" {
		t.Errorf("filled from %q", got)
	}
	details := eval[string](v.tab, row+`.nextSibling.textContent`)
	for _, want := range []string{`Self-checkequal, \d+ s ago, took [\d.]+ m?s; next in \d+ s`, `Filled fromkube-apiserver, \d+ objects? in [\d.]+ m?s, \d+ (s|min) ago`,
		`Digest of the objects[0-9a-f]{32} at \d+`} {
		if !regexp.MustCompile(want).MatchString(details) {
			t.Errorf("got %q, want %q", details, want)
		}
	}
}

// testKeyboard: everything can be done with the keyboard alone, and the focus is always visible.
func testKeyboard(t *testing.T, v *visit) {
	focused := func() string {
		return eval[string](v.tab, `document.activeElement.innerText.split("\n")[0]`)
	}
	press := func(key, want string) {
		t.Helper()
		v.press(key)
		if got := focused(); got != want {
			t.Fatalf("after %q, got focus on %q, want %q", key, got, want)
		}
		if want != "" && !eval[bool](v.tab, `(() => {
			const style = getComputedStyle(document.activeElement);
			const box = document.activeElement.getBoundingClientRect();
			return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 &&
				box.top >= 0 && box.bottom <= innerHeight && box.width > 0;
		})()`) {
			t.Errorf("the focus on %q can't be seen", want)
		}
	}
	sorted := func(direction string, names ...string) {
		t.Helper()
		var got []string
		for _, row := range v.rows() {
			got = append(got, strings.Fields(row)[0])
		}
		if !slices.Equal(got, names) {
			t.Errorf("got order %q, want %q", got, names)
		}
		if got := eval[string](v.tab,
			`document.activeElement.closest("th").getAttribute("aria-sort") ?? ""`); got != direction {
			t.Errorf("got aria-sort %q, want %q", got, direction)
		}
		if got := eval[int](v.tab, `document.querySelectorAll("[aria-sort]").length`); got != 1 {
			t.Errorf("%d columns are said to be sorted", got)
		}
	}
	tab := func(all ...string) {
		t.Helper()
		for _, want := range all {
			press(kb.Tab, want)
		}
	}
	tab("Skip to the lanes", "Pause")
	press(kb.Enter, "Resume")
	v.until("pause", `document.querySelector("#link-text").textContent === "Paused"`)
	press(kb.Enter, "Pause")
	v.until("resumption", `document.querySelector("#link-text").textContent === "Live"`)
	press(kb.Tab, "Clients") // all plots together
	if got := eval[string](v.tab, `document.activeElement.id`); got != "plots" {
		t.Errorf("got focus on %q", got)
	}
	then := func() string { return v.text("#cursor") }
	for key, want := range map[string]string{kb.ArrowLeft: "shown as of 5 s ago", kb.Home: "shown as of 5 min ago", kb.End: "shown as of 0 s ago"} {
		v.press(key)
		if got := then(); got != want {
			t.Errorf("after %q the plots are %q, want %q", key, got, want)
		}
		if v.press(kb.Escape); then() != "" {
			t.Errorf("after Escape the plots are %q", then())
		}
	}
	v.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	v.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	v.press(kb.Enter) // on the link that skips
	press(kb.Tab, "Resource")
	sorted("", "configmaps", "serviceaccounts", "pods")
	press(kb.Enter, "Resource")
	sorted("ascending", "configmaps", "pods", "serviceaccounts")
	press(kb.Enter, "Resource")
	sorted("descending", "serviceaccounts", "pods", "configmaps")
	tab("State", "Clients")
	press(kb.Enter, "Clients")
	sorted("descending", "configmaps", "serviceaccounts", "pods")
	press(kb.Enter, "Clients")
	sorted("ascending", "pods", "serviceaccounts", "configmaps")
	tab("Filters", "Objects", "Size", "Events/s", "Last heard", "Filled from", "Self-check", "apiservices", "pods") // apiservices has no clients
	press(kb.Enter, "pods")
	tab("Watchers of v1/pods")
	got := eval[string](v.tab, `document.activeElement.getAttribute("href")`)
	if got != "debug/watchers?resource=v1%2Fpods" {
		t.Errorf("got link %q", got)
	}
	const details = `document.activeElement.closest("tr").innerText`
	if got := eval[string](v.tab, details); !strings.Contains(got, "Upstream watch\nopen for ") ||
		!strings.Contains(got, "Last error\nnone") {
		t.Errorf("got details %q", got)
	}
	v.until("two more answers",
		`(globalThis.before ??= document.querySelector("#plot-clients .line").getAttribute("d").length) + 20 <
		document.querySelector("#plot-clients .line").getAttribute("d").length`)
	if got := focused(); got != "Watchers of v1/pods" {
		t.Errorf("the next answers took the focus to %q", got)
	}
	press(kb.Escape, "pods")
	if eval[bool](v.tab, `document.activeElement.closest("tr").nextSibling.checkVisibility()`) {
		t.Error("Escape does not hide the details")
	}
	press(kb.Enter, "pods")
	unnamed := eval[[]string](v.tab, `[...document.querySelectorAll("button, a, [tabindex], section, svg, table")].filter((e) =>
		!(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.textContent.trim())).map((e) => e.outerHTML.slice(0, 80))`)
	if len(unnamed) > 0 {
		t.Errorf("without a name: %q", unnamed)
	}
}

// contrasts is a script. It returns the number of texts, and the texts whose contrast with their
// background is below 4.5.
//
//go:embed contrast.js
var contrasts string

// testContrast fails if a text is hard to read.
func (v *visit) testContrast(t *testing.T, where string) {
	t.Helper()
	got := eval[struct {
		Texts int
		Poor  []string
	}](v.tab, contrasts)
	if len(got.Poor) > 0 || got.Texts < 60 {
		t.Errorf("%s: of %d texts, hard to read: %q", where, got.Texts, got.Poor)
	}
}

// testThemes: all text can be read in both themes.
func testThemes(t *testing.T, v *visit) {
	back := make(map[string]uint8)
	for _, theme := range []string{"light", "dark"} {
		v.media("prefers-color-scheme", theme)
		picture := v.screenshot(theme)
		corner := color.GrayModel.Convert(picture.At(1, 1)).(color.Gray)
		back[theme] = corner.Y
		if n := colours(picture); n < 20 {
			t.Errorf("the %s page has %d colours", theme, n)
		}
		v.testContrast(t, theme)
	}
	if back["light"] < 200 || back["dark"] > 50 {
		t.Errorf("got backgrounds %v", back)
	}
	eval[bool](v.tab, `(() => {
		const p = document.createElement("p");
		p.textContent = "grey on grey";
		p.style.color = "#777";
		p.style.background = "rgba(60, 60, 60, .9)";
		document.querySelector("main").append(p);
		return true;
	})()`)
	if got := eval[[]string](v.tab, contrasts+`.poor`); len(got) != 1 || !strings.HasPrefix(got[0], "grey on grey") {
		t.Errorf("poor contrast is not seen: %q", got)
	}
	eval[bool](v.tab, `document.querySelector("main > p").remove() === undefined`)
}

func colours(picture image.Image) int {
	seen := make(map[color.Color]bool)
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 3 {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x += 3 {
			seen[picture.At(x, y)] = true
		}
	}
	return len(seen)
}

// testNarrow: on a telephone nothing is cut off, and nobody has to scroll sideways.
func testNarrow(t *testing.T, v *visit) {
	const beyond = `[...document.querySelectorAll("body *")].filter((e) =>
		e.checkVisibility() && !e.closest(".unseen, .skip, svg") &&
		(e.getBoundingClientRect().right > innerWidth || e.getBoundingClientRect().left < 0)
		).map((e) => e.outerHTML.slice(0, 80))`
	for _, width := range []int64{360, 700, 1000} {
		v.width(width, 740)
		v.screenshot(fmt.Sprint("width-", width))
		if got := eval[int64](v.tab, `document.documentElement.scrollWidth`); got != width {
			t.Errorf("the page is %d pixels wide on a screen of %d", got, width)
		}
		if got := eval[[]string](v.tab, beyond); len(got) > 0 {
			t.Errorf("beyond the screen of %d pixels: %q", width, got)
		}
		got := eval[string](v.tab,
			`[...document.querySelectorAll("tr.lane")].find((row) => row.innerText.includes("pods")).innerText`)
		if !strings.Contains(got, "pods") || !strings.Contains(got, "Synced") || !strings.Contains(got, "3") {
			t.Errorf("a lane's row is %q", got)
		}
	}
	v.width(1280, 900)
}

// testReducedMotion: nothing moves for people who prefer that.
func testReducedMotion(t *testing.T, v *visit) {
	const moving = `[...document.querySelectorAll("*")].filter((e) => ["", "::before", "::after"].some((part) => {
		const style = getComputedStyle(e, part || undefined);
		return style.transitionDuration !== "0s" || style.animationName !== "none";
	})).length`
	if eval[int](v.tab, moving) == 0 {
		t.Error("nothing moves anyway")
	}
	v.media("prefers-reduced-motion", "reduce")
	if got := eval[int](v.tab, moving); got > 0 {
		t.Errorf("%d elements move", got)
	}
}

// testStale: while watchfan does not answer, the page says so and keeps what it knows. Afterwards
// the plots have a gap.
func testStale(t *testing.T, v *visit) {
	lines := func() int {
		return eval[int](v.tab, `document.querySelector("#plot-clients .line").getAttribute("d").match(/M/g).length`)
	}
	before := lines()
	if err := v.w.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	v.until("stale marker", `document.querySelector("#stale").checkVisibility()`)
	got := eval[string](v.tab, `document.querySelector("#stale").innerText`)
	if !strings.HasPrefix(got, "watchfan has not answered since ") {
		t.Errorf("got %q", got)
	}
	if got := v.text("#link-text"); got != "Stale" ||
		v.value("clients") != 25 {
		t.Errorf("got %q, %v clients", got, v.value("clients"))
	}
	for _, theme := range []string{"light", "dark"} {
		v.media("prefers-color-scheme", theme)
		v.screenshot("stale-" + theme)
		v.testContrast(t, "stale, "+theme)
	}
	time.Sleep(time.Until(stopped.Add(6 * time.Second))) //testlint:allow timer the plot has no answers of this time
	if err := v.w.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	v.until("live again",
		`!document.querySelector("#stale").checkVisibility() && document.querySelector("#link-text").textContent `+
			`=== "Live"`)
	if got := lines(); got != before+1 {
		t.Errorf("the plot had %d lines before and has %d", before, got)
	}
}

// testStalled: a client that does not read is seen, with the reason and what to do. The pictures for
// the documents are taken here.
func testStalled(t *testing.T, v *visit) {
	const inSystem = "/api/v1/namespaces/kube-system/configmaps"
	for i := range 20 {
		if err := v.w.write(http.MethodPost, inSystem, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large-%d"},"data":{"x":%q}}`,
			i, strings.Repeat("x", 200_000))); err != nil {
			t.Fatal(err)
		}
	}
	v.fillPlots(t)
	stop := v.w.load(t, 20, configMaps+"/busy")
	end := v.w.stall(t, inSystem+"?watch=true&resourceVersion=0", "stalled-client/v1.2")
	const item = `document.querySelector("#slow-list li button")`
	eventually(t, "a slow watch", func() error {
		if !eval[bool](v.tab, item+` !== null && document.querySelector("#slow-list").checkVisibility()`) {
			return errors.New("none")
		}
		if got := eval[string](v.tab, item+`.textContent`); !strings.HasPrefix(got, "ClientNotReading · v1/configmaps · stalled-client/v1.2") ||
			!strings.Contains(got, "the client does not read") || !strings.Contains(got, " in its socket · 127.0.0.1:") {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if got := v.text("#slow-count"); got != "1 of 26" {
		t.Errorf("%q watches are slow", got)
	}
	eval[bool](v.tab, `document.querySelector("#plots").focus() === undefined`)
	v.press(kb.Tab)
	if !eval[bool](v.tab, `document.activeElement === `+item) {
		t.Error("the slow watch does not follow the plots")
	}
	v.press(kb.Enter)
	const verdict = `document.querySelector("#slow-list .verdict")`
	v.until("the verdict", verdict+`.checkVisibility() && `+verdict+`.textContent.includes("So the client does not read.") && `+
		verdict+`.textContent.includes("Check the client")`)
	v.pictures(t)
	if v.press(kb.Escape); eval[bool](v.tab, verdict+`.checkVisibility() || document.activeElement !== `+item) {
		t.Error("Escape does not hide the verdict, or takes the focus away")
	}
	stop()
	end()
	eventually(t, "the end of the slow watch", func() error {
		if text := eval[string](v.tab, `document.querySelector("#none-slow").innerText`); text != "None: each client has been sent all there is." {
			return fmt.Errorf("the page says %q", text)
		}
		return nil
	})
	v.until("the others", `document.querySelector("#plot-clients .value span").textContent === "25"`)
}

// testPolicy: the page may use nothing from elsewhere and no markup from text. The page has not
// complained so far; this test shows that it would.
func testPolicy(t *testing.T, v *visit) {
	v.quiet()
	elsewhere := eval[[]string](v.tab, `performance.getEntriesByType("resource").map((e) => e.name).filter((url) => !url.startsWith(location.origin + "/"))`)
	if len(elsewhere) > 0 {
		t.Errorf("the page has asked for %q", elsewhere)
	}
	got := eval[string](v.tab,
		`(() => { try { document.createElement("p").innerHTML = "<b>x</b>"; return "allowed" } catch (e) `+
			`{ return e.name } })()`)
	if got != "TypeError" {
		t.Errorf("innerHTML: %s", got)
	}
	for _, script := range []string{
		`document.createElement("p").append(Object.assign(new Image(), { src: "http://127.0.0.1:1/x.png" }))`,
		`document.head.append(Object.assign(document.createElement("script"), { text: "1" }))`,
	} {
		v.taken()
		eval[bool](v.tab, `(() => { try { `+script+` } catch {} return true })()`)
		eventually(t, script, func() error {
			if c := fmt.Sprint(v.taken()); !strings.Contains(c, "Content Security Policy") && !strings.Contains(c, "TrustedScript") {
				return fmt.Errorf("no complaint but %s", c)
			}
			return nil
		})
	}
}

// testText: markup in text from watchfan is shown as it stands.
func testText(t *testing.T, b *browser, w *watchfan) {
	const markup = `<img src=x onerror="document.title='markup'"><b>&amp;</b>`
	p := b.open(t, "http://"+w.admin+"/statusz", `const real = window.fetch, text = `+strconv.Quote(markup)+`;
		const watch = { id: 7, reason: "ClientNotReading", resource: text, userAgent: text, client: text, protocol: text,
			lagEvents: 1, lagBytes: 1, lagSeconds: 1, queuedBytes: 1 };
		window.fetch = async (path, ...rest) => {
			const give = (answer) => ({ ok: true, status: 200, json: async () => answer });
			if (path === "debug/watchers/7?format=json") return give({ verdict: { message: text, advice: text } });
			if (path.startsWith("debug/watchers?"))
				return give({ matching: 1, watchers: [watch], slow: [{ reason: "ClientNotReading", meaning: text, watches: 1 }] });
			const answer = await (await real(path, ...rest)).json();
			if (!path.startsWith("debug/lanes")) return give(answer);
			answer.version = answer.upstream = text;
			answer.checks.push({ name: text, error: text });
			answer.lanes.push({ ...answer.lanes[0], group: text, resource: text, encoding: text, state: text, clients: 3,
				watchBegan: undefined, lastError: { kind: text, time: answer.time },
				filled: { source: "sibling", address: text, time: answer.time, seconds: 0.5, objects: 250 },
				selfCheck: { result: "different", time: answer.time, seconds: 0.2, digest: text, resourceVersion: "1", objects: 250 } });
			return give(answer);
		}`)
	p.until("the lane", `document.querySelectorAll("tr.lane").length === 5`)
	p.until("the slow watch", `document.querySelector("#slow-list li") !== null`)
	eval[bool](p, `document.querySelectorAll("main [aria-expanded]").forEach((b) => b.click()) === undefined`)
	p.until("the verdict", `document.querySelectorAll("#slow-list .verdict p").length === 2`)
	if got := eval[int](p, `document.body.innerText.split(text).length - 1`); got != 21 {
		t.Errorf("the text is there %d times", got)
	}
	const row = `[...document.querySelectorAll("tr.lane")].find((row) => row.innerText.includes(text))`
	if got := eval[string](p, row+`.cells[8].textContent + " " + `+row+`.cells[9].textContent + " " + `+row+`.cells[9].dataset.tone`); got != "sibling different bad" {
		t.Errorf("a lane that is wrong is %q", got)
	}
	if got := eval[string](p, row+`.nextSibling.textContent`); !strings.Contains(got, "Filled fromsibling "+markup+", 250 objects in 500 ms, 0 s ago") ||
		!strings.Contains(got, "Self-checkdifferent, 0 s ago, took 200 ms") {
		t.Errorf("its details are %q", got)
	}
	if got := eval[string](p, `filling({ filled: { source: "disk", time: state.time, seconds: 0.5, objects: 250 } })`); got != "--cache-dir, 250 objects in 500 ms, 0 s ago" {
		t.Errorf("a lane that is filled from --cache-dir has %q", got)
	}
	if got := eval[int](p, `document.querySelectorAll("main img, main b, header b").length`); got != 0 {
		t.Errorf("%d elements were made of it", got)
	}
	if got := eval[string](p, `document.title`); got != "watchfan" {
		t.Errorf("got title %q", got)
	}
	got := p.text("#lane-count")
	if got != "5, 1 of them without an upstream watch now" {
		t.Errorf("got %q lanes", got)
	}
	p.quiet()
}

// testRefused: where watches are shown to nobody else, the page says so and has the rest.
func testRefused(t *testing.T, b *browser, w *watchfan) {
	p := b.open(t, "http://"+w.admin+"/", `let asked = 0;
		const real = window.fetch;
		window.fetch = async (path, ...rest) => {
			if (!path.startsWith("debug/watchers")) return real(path, ...rest);
			asked++;
			return { ok: false, status: 403 };
		}`)
	p.until("the refusal", `document.querySelector("#none-slow").innerText.startsWith("Watches are shown to programs on watchfan's own host only")`)
	p.until("the rest", `document.querySelectorAll("tr.lane").length === 4`)
	if got := eval[int](p, `asked`); got != 1 {
		t.Errorf("asked %d times", got)
	}
}

// testRestart: the page continues with the next watchfan on the same port, and its counters begin
// anew.
func testRestart(t *testing.T, v *visit) {
	v.w.stop()
	v.until("stale marker", `document.querySelector("#stale").checkVisibility()`)
	_, port, err := net.SplitHostPort(v.w.admin)
	if err != nil {
		t.Fatal(err)
	}
	startWatchfan(t, v.w.kubeconfig, port)
	v.until("live again", `!document.querySelector("#stale").checkVisibility()`)
	v.until("no lanes",
		`document.querySelector("#no-lanes").checkVisibility() && !document.querySelector("table").checkVisibility()`)
	if clients, rate := v.value("clients"), v.value("deliveries"); clients != 0 || rate != 0 {
		t.Errorf("got %v clients, %v deliveries a second", clients, rate)
	}
	if c := v.taken(); slices.ContainsFunc(c, func(c string) bool { return !strings.Contains(c, "net::ERR_") }) {
		t.Errorf("the browser complained: %q", c)
	}
	v.screenshot("no-lanes")
}
