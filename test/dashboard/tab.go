package dashboard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is how long a page may take for one step, on a busy machine.
const patience = time.Minute

// startBrowser starts Chromium without a window and returns the context of its tabs.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "chromium is not installed: make chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU,
		chromedp.IgnoreCertErrors, chromedp.Flag("hide-scrollbars", false))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has no sandbox for root.
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	browser, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	require.NoError(t, chromedp.Do(browser))
	return browser
}

// tab shows the dashboard in a browser context of its own, and records all errors in it.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu     sync.Mutex
	faults []string // Guarded by mu.
}

// newTab opens a tab that shares nothing with others. The test fails if the tab has recorded an error when it ends.
func newTab(t *testing.T, browser context.Context, url string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, url: url}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, b.note))
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: `addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective))`,
		})
		return err
	}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.faults, "errors in the console of the page")
	})
	return b
}

// note records errors of scripts and policies. A failed request is not an error of the page, which shows it.
func (b *tab) note(ev any) {
	fault := ""
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			for _, arg := range e.Args {
				fault += string(arg.Value) + arg.Description + " "
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" && e.Entry.Source != "network" {
			fault = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	}
	if fault != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, fault)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// open loads the dashboard and waits until it shows providers.
func (b *tab) open() {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url))
	b.until(`document.querySelectorAll('.providers tbody tr').length > 0`, "providers are shown")
	b.live()
}

// count returns the number of elements that match.
func (b *tab) count(selector string) int {
	b.t.Helper()
	return evaluate[int](b, fmt.Sprintf(`document.querySelectorAll(%q).length`, selector))
}

// rows waits until that many providers are shown.
func (b *tab) rows(providers int) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelectorAll('.providers tbody tr').length === %d`, providers),
		fmt.Sprintf("%d providers are shown", providers))
}

func (b *tab) live() {
	b.t.Helper()
	b.until(`document.querySelector('.stream')?.textContent === 'Live'`, "the stream is live")
}

// evaluate returns the value of an expression in the page; it waits for a promise.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return value
}

// until waits until the condition, in JavaScript, is true.
func (b *tab) until(condition, what string) {
	b.t.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](condition,
		chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoErrorf(b.t, err, "timed out waiting until %s; the text of the page:\n%s", what, b.text())
}

func (b *tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// click clicks on the first element that matches a CSS selector.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`!!document.querySelector(%q)`, selector), selector+" is there")
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

// signIn signs in with a token, as a user does.
func (b *tab) signIn(token string) {
	b.t.Helper()
	b.click(`.account`)
	b.do(chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.KeyEvent(token+"\r"))
	b.until(`!document.querySelector('dialog') && !!document.querySelector('.account .who')`, "the token is accepted")
	b.until(`document.querySelectorAll('.providers [role=switch]').length > 0`, "there are switches")
	b.live()
}

// turned returns a condition for the state of a provider's switch.
func turned(provider string, on bool) string {
	return fmt.Sprintf(`document.querySelector(%q)?.getAttribute('aria-checked') === '%v'`, switchOf(provider), on)
}

func switchOf(provider string) string {
	return fmt.Sprintf(`[role=switch][aria-label^="%s:"]`, provider)
}

// still waits until no animation runs.
func (b *tab) still() {
	b.t.Helper()
	b.until(`document.getAnimations().every((animation) => animation.playState !== 'running')`, "all is still")
}

// prefer sets the system's preference for light or dark.
func (b *tab) prefer(scheme string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// screenshot writes a picture of the whole page to the directory, if one is set; with a dialog, of the visible part.
func (b *tab) screenshot(dir, name string) {
	b.t.Helper()
	if dir == "" {
		return
	}
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	take := chromedp.FullScreenshot(100)
	if evaluate[bool](b, `!!document.querySelector('dialog')`) {
		take = chromedp.CaptureScreenshot()
	}
	b.still()
	image, err := chromedp.Run(b.ctx, take)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644))
}

// focused returns the accessible name of the focused element, by attribute or text.
func (b *tab) focused() string {
	b.t.Helper()
	return strings.TrimSpace(evaluate[string](b,
		`document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? ''`))
}
