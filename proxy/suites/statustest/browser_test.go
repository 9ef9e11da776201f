package statustest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium without a window.
type browser struct{ ctx context.Context }

func startBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(need(t, "CHROMIUM_BIN", "chromium")),
		chromedp.NoSandbox, // which root may not have
		chromedp.UserDataDir(t.TempDir()),
	)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("stop Chromium: %v", err)
		}
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return &browser{ctx}
}

// tab is an open page.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string // from the console: warnings, errors, exceptions, and what the policy forbade
}

// open opens url. before, if not "", is a script that runs before the page's own scripts.
func (b *browser) open(t *testing.T, url, before string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			p.complain("exception: %v", e.ExceptionDetails)
		case *cdpruntime.EventConsoleAPICalled:
			args, err := json.Marshal(e.Args)
			p.complain("console.%s: %s %v", e.Type, args, err)
		case *cdplog.EventEntryAdded:
			p.complain("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if before != "" {
		call(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: before})
	}
	p.do(chromedp.Navigate(url))
	return p
}

func (p *tab) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = append(p.complaints, fmt.Sprintf(format, args...))
}

// taken returns the complaints since it was last called.
func (p *tab) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.complaints
	p.complaints = nil
	return c
}

// quiet fails if there are complaints since they were last taken.
func (p *tab) quiet() {
	p.t.Helper()
	if c := p.taken(); len(c) > 0 {
		p.t.Errorf("the browser complained: %q", c)
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// call sends a command of the browser's protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.ctx, command, params); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of a script's expression.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits until a script's expression is true.
func (p *tab) until(what, script string) {
	p.t.Helper()
	eventually(p.t, what, func() error {
		if !eval[bool](p, script) {
			return fmt.Errorf("%s is false", script)
		}
		return nil
	})
}

// press presses a key.
func (p *tab) press(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key))
}

// media shows the page to somebody who prefers value of feature.
func (p *tab) media(feature, value string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}})
}

func (p *tab) width(pixels, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(pixels, height))
}

// screenshot returns the whole page, and keeps it in the test's artifacts.
func (p *tab) screenshot(name string) image.Image {
	p.t.Helper()
	content, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), content, 0o644); err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		p.t.Fatal(err)
	}
	return picture
}
