package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A dialog that is closed returns the focus to the element that opened it.
func TestFocusReturnsFromTheAccount(t *testing.T) {
	server := serve(t, small().handler())
	b := newTab(t, startBrowser(t), "http://"+server.address+"/")
	b.open()
	closed := func(account, after string) {
		t.Helper()
		b.until(fmt.Sprintf(`!document.querySelector('dialog') && document.querySelector('.account').textContent === %q`,
			account), "the dialog is closed after "+after)
		require.True(t, evaluate[bool](b, `document.activeElement.matches('.account')`), "the focus after "+after)
	}
	opened := func(field string) {
		t.Helper()
		b.do(chromedp.KeyEvent("\r"))
		b.until(fmt.Sprintf(`document.querySelector('dialog')?.open && !!document.querySelector('dialog %s')`, field),
			"the dialog is open")
		evaluate[chromedp.Void](b, fmt.Sprintf(`document.querySelector('dialog %s').focus()`, field))
	}
	evaluate[chromedp.Void](b, `document.querySelector('.account').focus()`)
	opened("#token")
	b.do(chromedp.KeyEvent(operatorToken + "\r"))
	closed("operator", "signing in")
	opened("#consumer")
	b.do(chromedp.KeyEvent(consumerID + "\r"))
	closed("for "+consumerID, "acting for a consumer")
	opened(".sign-out")
	b.do(chromedp.KeyEvent("\r"))
	closed("Sign in", "signing out")
}

// The browser sends a dialog's close event after the dialog is gone. It must not close a dialog that was opened
// meanwhile.
func TestADialogClosesItselfOnly(t *testing.T) {
	b := withoutPage(t)
	const script = `Promise.all([import('/parts.js'), import('/ui.js')]).then(async ([{Dialog}, {html, render}]) => {
		const place = document.body.appendChild(document.createElement('div'));
		let closed = 0;
		const show = () => {
			render(html` + "`<${Dialog} title=\"x\" close=${() => closed++} />`" + `, place);
			const dialog = place.querySelector('dialog');
			return [dialog, new Promise((done) => dialog.addEventListener('close', done))];
		};
		const [, gone] = show();
		render(null, place);
		await gone;
		const whenGone = closed;
		const [dialog, cancelled] = show();
		dialog.close();
		await cancelled;
		return [whenGone, closed];
	})`
	require.Equal(t, []int{0, 1}, evaluate[[]int](b, script), "calls of close: by a dialog that is gone, by one that is shown")
}

// The search box shows the current search, even if a link started it, and does not interrupt typing.
func TestSearchFollows(t *testing.T) {
	b := withoutPage(t)
	const script = `Promise.all([import('/parts.js'), import('/ui.js')]).then(async ([{Search}, {html, render}]) => {
		const place = document.body.appendChild(document.createElement('div'));
		const searches = [];
		let searched = () => {};
		const search = (text) => { searches.push(text); searched(); };
		const show = (value) => render(html` + "`<${Search} label=\"x\" value=${value} found=${search} />`" + `, place);
		const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)));
		const found = () => new Promise((done) => { searched = done; });
		const type = (text) => {
			const box = place.querySelector('input');
			box.value = text;
			box.dispatchEvent(new Event('input', {bubbles: true}));
		};
		const said = [];
		const box = () => said.push(place.querySelector('input').value);

		show('');
		let next = found();
		type('we');
		await next;
		next = found();
		type('web '); // Before what is found is drawn.
		show('we');
		await next;
		box();
		show('web');
		await drawn();
		box(); // With the space: who types may go on.
		show(''); // From elsewhere.
		while (place.querySelector('input').value) {
			await drawn();
		}
		box();
		next = found();
		type('a');
		await next;
		return [said, searches];
	})`
	require.Equal(t, [][]string{{"web ", "web ", ""}, {"we", "web", "a"}}, evaluate[[][]string](b, script))
}

func TestShowItsPodsShowsWhatIsSearched(t *testing.T) {
	b, _ := signedIn(t, small(), consumerToken)
	b.click(`#placements .search`)
	b.do(chromedp.KeyEvent("web"))
	b.pods(8)
	b.click(`.disclose`)
	b.click(`tr.details button.quiet`)
	b.until(`document.querySelector('.chip')?.textContent.includes('at frankfurt-gpu')`, "the filter is shown")
	b.pods(3)
	b.until(`document.querySelector('#placements .search').value === ''`, "no search is shown that is not applied")
}

// pods waits until n pods are shown.
func (b *tab) pods(n int) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.querySelectorAll('.placements tbody tr').length === %d`, n),
		fmt.Sprintf("%d pods are shown", n))
}

// In a closed catalog, callers that may only act for a consumer must name the consumer to get the histories.
func TestHistoriesAreAskedForAsTheConsumer(t *testing.T) {
	federation := small()
	b, _ := signedIn(t, federation, operatorToken)
	b.click(`.account`)
	b.click(`#consumer`)
	b.do(chromedp.KeyEvent(consumerID + "\r"))
	b.until(fmt.Sprintf(`document.querySelector('.account').textContent === 'for %s'`, consumerID),
		"the operator acts for it")
	require.Eventually(t, func() bool { return federation.called("/history?", "consumer="+consumerID) >= 3 },
		patience, 50*time.Millisecond, "the histories are requested for the consumer")
	require.Empty(t, federation.wrong, "calls with parameters that the API does not have")
}
