package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

// Widths of windows, in CSS pixels.
const (
	phone   = 390
	desktop = 1280
)

// tab is a page in a real Chromium without a window.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // of the console
}

// openTab starts a browser, which ends with the test.
func openTab(t *testing.T) *tab {
	t.Helper()
	program, err := peers.Find("google-chrome")
	if err != nil {
		program = peers.Need(t, "chromium")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, // root has none; the pages are our own
		chromedp.WSURLReadTimeout(patience))
	allocator, cancelAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the process, whose files would otherwise hinder the end of TempDir
		cancel()
		cancelAllocator()
	})
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	return b
}

// listen keeps what a page writes to the console, its exceptions, and what the browser reports about it.
func (b *tab) listen(event any) {
	switch event.(type) {
	case *runtime.EventExceptionThrown, *runtime.EventConsoleAPICalled, *log.EventEntryAdded:
		text, _ := json.Marshal(event)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, string(text))
	}
}

// perform applies an action within patience.
func perform[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// evaluate is the value of a script's last expression, or of its promise.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	return perform(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// await waits until an expression is true. The page's policy forbids what chromedp.Poll does.
func (b *tab) await(expression string) {
	b.t.Helper()
	evaluate[bool](b, "new Promise(done => { const look = () => ("+expression+") ? done(true) : setTimeout(look, 20); look() })")
}

// open shows a page with a width and a colour scheme, light or dark.
func (b *tab) open(url string, width int64, scheme string) {
	b.t.Helper()
	perform(b, chromedp.EmulateViewport(width, 800))
	perform(b, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
	perform(b, chromedp.Navigate(url))
}

// silent fails the test if the console has a message.
func (b *tab) silent() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("the console has: %s", p)
	}
	b.problems = nil
}

// fits fails the test if the page scrolls sideways.
func (b *tab) fits() {
	b.t.Helper()
	widest := evaluate[string](b, `(() => {
		const limit = document.documentElement.clientWidth
		if (document.documentElement.scrollWidth <= limit) return ''
		const wide = [...document.querySelectorAll('body *')].find(e => e.getBoundingClientRect().right > limit + 1)
		return 'scrolls to ' + document.documentElement.scrollWidth + ' of ' + limit + ': ' + (wide ? wide.outerHTML.slice(0, 200) : '')
	})()`)
	if widest != "" {
		b.t.Errorf("the page %s", widest)
	}
}

// accessible runs axe-core: every violation fails the test.
func (b *tab) accessible(axe string) {
	b.t.Helper()
	perform(b, chromedp.Evaluate[bool](axe))
	found := evaluate[string](b, `axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.map(v =>
		({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.failureSummary)}))))`)
	var violations []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		b.t.Errorf("axe-core: %s (%s): %s\n%s", v.ID, v.Impact, v.Help, strings.Join(v.Nodes, "\n"))
	}
}

// focus is where the keyboard acts.
type focus struct {
	Index   int    // in the order of the document
	Outline string // empty if it is visible
	HTML    string
}

// keyboard presses Tab through the page: the focus reaches each element that can have it, in the order of the document, and
// is visible there. It returns their number.
func (b *tab) keyboard() int {
	b.t.Helper()
	wanted := evaluate[int](b, `document.activeElement.blur(), window.stops = [...document.querySelectorAll('a[href], button, input, summary, [tabindex]')].filter(e => e.tabIndex >= 0), window.stops.length`)
	for i := range wanted {
		perform(b, chromedp.KeyEvent(kb.Tab))
		at := evaluate[focus](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect()
			const seen = r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth
			return {Index: window.stops.indexOf(e), Outline: seen && s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0 ? '' : s.outline + ' ' + JSON.stringify(r), HTML: e.outerHTML.slice(0, 200)}
		})()`)
		if at.Index != i {
			b.t.Fatalf("Tab number %d goes to element %d: %s", i+1, at.Index, at.HTML)
		}
		if at.Outline != "" {
			b.t.Errorf("the focus is not visible on %s: %s", at.HTML, at.Outline)
		}
	}
	return wanted
}

// contains fails the test if a text is missing in what the page shows.
func (b *tab) contains(texts ...string) {
	b.t.Helper()
	shown := evaluate[string](b, `document.body.innerText`)
	for _, text := range texts {
		if !strings.Contains(shown, text) {
			b.t.Errorf("the page has no %q:\n%s", text, shown)
		}
	}
}

// screenshot writes the whole page into the folder of -screenshots, if there is one.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), perform(b, chromedp.FullScreenshot(100)), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// examine opens a page in every width and scheme, once settled is true, and applies all checks.
func (b *tab) examine(name, url, settled string, texts ...string) {
	b.t.Helper()
	axe := axeCore(b.t)
	for _, width := range []int64{desktop, phone} {
		for _, scheme := range []string{"light", "dark"} {
			b.open(url, width, scheme)
			b.await(settled)
			b.fits()
			b.contains(texts...)
			b.accessible(axe)
			b.screenshot(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			b.silent()
		}
	}
	b.t.Logf("%s: Tab reaches %d elements", name, b.keyboard())
	b.silent()
}

// axeCore is the text of axe-core.
func axeCore(t *testing.T) string {
	t.Helper()
	modules, err := nodeModules(peers.Need(t, "npm"))
	switch {
	case err == nil:
	case peers.InCI():
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	text, err := os.ReadFile(filepath.Join(modules, "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "; true"
}
