package dashboard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// screenshots returns the directory for the pictures: SCREENSHOTS, or a directory that the output names.
func screenshots(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "liqo-broker-vk-screenshots")
	}
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	t.Logf("screenshots are in %s", dir)
	return dir
}

func TestDashboard(t *testing.T) {
	federation := small()
	server := serve(t, federation.handler())
	Scenarios(t, Target{
		URL: "http://" + server.address + "/", Consumer: consumerID,
		ConsumerToken: consumerToken, OperatorToken: operatorToken,
		Provider: "helsinki-dc1", Namespace: "shop-consumer1", Pod: federation.placements[4].Pod,
		Stop: server.Stop, Start: server.Start, Screenshots: screenshots(t),
	})
	require.Empty(t, federation.wrong, "calls with parameters that the API does not have")
}

func TestAClosedCatalogAsksForAToken(t *testing.T) {
	federation := small()
	federation.closed = true
	server := serve(t, federation.handler())
	b := newTab(t, startBrowser(t), "http://"+server.address+"/")
	b.do(chromedp.Navigate(b.url))
	b.until(`document.querySelector('.problem')?.textContent.includes('open to callers with a token only')`,
		"it is said why nothing is shown")
	b.until(`document.querySelector('.stream').textContent === 'Not live'`, "there is no stream for strangers")
	b.signIn(consumerToken)
	b.rows(3)
	require.Zero(t, b.count(`.problem`))
}

func TestATokenThatIsRevokedSignsOut(t *testing.T) {
	federation := small()
	b, server := signedIn(t, federation, consumerToken)
	federation.mu.Lock()
	federation.revoked = true
	federation.mu.Unlock()
	server.Stop()
	server.Start()
	b.until(`document.querySelector('.account').textContent === 'Sign in'`, "the person is signed out")
	b.until(`document.querySelector('.notice [role=status]').textContent.includes('signed out')`, "it is said why")
	require.Zero(t, b.count(`#placements, [role=switch]`))
	b.live()
}

func TestTextOfTheAPIIsText(t *testing.T) {
	const markup = `<img src="x" onerror="alert(1)"><b>bold</b>`
	const hidden = "\x1b[2J\x00\r\u202e\u2066\u200b\ufeff"
	federation := small()
	federation.providers[0].Conditions[0].Message, federation.providers[0].Conditions[0].Reason = hidden+markup, markup
	federation.providers[0].Attributes["tier"], federation.providers[0].Region = markup, hidden+markup
	federation.placements[0].Message = hidden + markup
	b, _ := signedIn(t, federation, consumerToken)
	b.click(`.disclose`)
	b.until(`document.querySelector('tr.details')?.textContent.includes('<img src="x"')`, "markup is shown as it is")
	require.Zero(t, b.count(`main img, main [onerror]`))
	// Text that changes its direction does not affect the text beside it.
	b.until(`document.querySelector('main').textContent.includes('\u202e')`, "characters that are not shown are in the page")
	b.until(`[...document.querySelectorAll('main :not(svg, svg *)')].every(
		e => !getComputedStyle(e).display.startsWith('inline') || getComputedStyle(e).unicodeBidi.startsWith('isolate'))`,
		"every text is isolated")
}

// TestLargeFederation checks that the page stays usable while many changes happen, on a busy machine.
func TestLargeFederation(t *testing.T) {
	federation := large(1000, 10_000)
	b, _ := signedIn(t, federation, operatorToken)
	for rows := 100; rows < 1000; rows += 100 {
		b.rows(rows)
		evaluate[chromedp.Void](b, `document.querySelector('.providers ~ .more button').click()`)
	}
	b.rows(1000)
	require.Zero(t, b.count(`.providers ~ .more button`), "there are no more")
	calm := b.search("pod-0778")
	evaluate[chromedp.Void](b, `window.longest = 0; (function frame(last) {
		requestAnimationFrame((now) => { window.longest = Math.max(window.longest, now - last); frame(now); })
	})(performance.now())`)

	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		federation.stir(ctx, 5*time.Millisecond)
	}()
	stirred := b.search("pod-0777")
	b.click(switchOf("provider-0003"))
	b.until(turned("provider-0003", false), "the switch is off")
	b.until(`document.querySelector('.providers').textContent.includes('4,242 pods')`, "events are shown")
	stop()
	<-done
	longest := time.Duration(evaluate[float64](b, `window.longest`) * float64(time.Millisecond))
	t.Logf("with 1,000 providers shown: a search took %v, with 400 events a second %v; the longest frame then %v",
		calm, stirred, longest)
	require.Less(t, stirred, 10*calm, "events make the page slow")
	require.Less(t, longest, 3*max(calm, stirred), "a frame takes longer than a search")
}

// search searches for pods of a name, of which there are ten, and returns how long the page took.
func (b *tab) search(pod string) time.Duration {
	b.t.Helper()
	b.click(`#placements .search`)
	began := time.Now()
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('#placements .search').select()`), chromedp.KeyEvent(pod))
	b.until(fmt.Sprintf(`(() => {
		const rows = [...document.querySelectorAll('.placements tbody tr')];
		return rows.length === 10 && rows.every((row) => row.textContent.includes(%q));
	})()`, pod), "the search finds ten pods")
	return time.Since(began)
}
