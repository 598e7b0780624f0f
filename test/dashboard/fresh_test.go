package dashboard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// policyRow returns the text of a policy's row.
func policyRow(name string) string {
	return fmt.Sprintf(`([...document.querySelectorAll('.policies tbody tr')]
		.find((row) => row.querySelector('.name').textContent === %q)?.textContent ?? '')`, name)
}

// choose selects an option, as a user does with the mouse in its list.
func (b *tab) choose(label, value string) {
	b.t.Helper()
	evaluate[chromedp.Void](b, fmt.Sprintf(`(() => {
		const select = document.querySelector('select[aria-label=%q]');
		select.value = %q;
		select.dispatchEvent(new Event('change', {bubbles: true}));
	})()`, label, value))
}

// The API sends no events for policies.
func TestPoliciesAreReadAgain(t *testing.T) {
	t.Parallel() // It waits for the page's periodic reads.
	federation := small()
	server := serve(t, federation.handler())
	browser := startBrowser(t)
	b := newTab(t, browser, "http://"+server.address+"/")
	b.pace(0) // Periodic reads must not hide a missing update.
	b.open()
	b.signIn(consumerToken)
	b.until(policyRow("selection-consumer1")+`.includes('all but milan-edge')`, "the selection is shown")
	b.until(policyRow("cheap-in-europe")+`.endsWith('11')`, "the pods are counted")

	b.click(switchOf("helsinki-dc1"))
	b.until(policyRow("selection-consumer1")+`.includes('all but helsinki-dc1, milan-edge')`,
		"the switch is in the policy")
	federation.place(placed(consumerID, "frankfurt-gpu", "another", time.Now(), 0))
	b.until(policyRow("cheap-in-europe")+`.endsWith('12')`, "the new pod is counted")
	b.until(`document.querySelector('.flow').textContent.includes('4 pods')`, "the new pod is in the picture")
	federation.remove("shop-consumer1", "another")
	b.until(policyRow("cheap-in-europe")+`.endsWith('11')`, "the pod is counted no more")

	hurried := newTab(t, browser, b.url)
	hurried.pace(30)
	hurried.open()
	hurried.signIn(consumerToken)
	hurried.until(policyRow("cheap-in-europe")+`.includes('priority 0')`, "the policy is shown")
	federation.mu.Lock()
	federation.priority = 7
	federation.mu.Unlock()
	hurried.until(policyRow("cheap-in-europe")+`.includes('priority 7')`, "a change without an event is shown")
}

// pace makes the page's periodic reads that many times as frequent; 0 disables them. It is called before the page is
// opened.
func (b *tab) pace(times int) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: fmt.Sprintf(`{
				const [real, times] = [window.setInterval, %d];
				window.setInterval = (act, every) => times && real(act, every / times);
			}`, times),
		})
		return err
	}))
}

func TestRowsThatNoLongerFitGo(t *testing.T) {
	federation := small()
	b, _ := signedIn(t, federation, operatorToken)
	var waiting []api.Placement
	for i := range 3 {
		p := placed(consumerID, "", fmt.Sprintf("late-%d", i), time.Now(), i)
		waiting = append(waiting, p)
		federation.place(p)
	}
	b.choose("State of pods", "waiting")
	b.pods(4)
	assign := func(p api.Placement) {
		federation.place(placed(p.Consumer, "milan-edge", p.Pod, time.Now(), 0))
	}
	focused := func(name, why string) {
		t.Helper()
		b.until(fmt.Sprintf(`document.activeElement.textContent.trim() === %q`, name), why)
	}

	evaluate[chromedp.Void](b, `[...document.querySelectorAll('.placements .link')]
		.find((link) => link.textContent.trim() === 'late-0').focus()`)
	assign(waiting[0])
	b.pods(3)
	focused("late-1", "the keyboard goes on in the next row")
	b.until(`document.querySelector('#placements .more').textContent.includes('3 pods')`, "they are counted")
	assign(waiting[1])
	assign(waiting[2])
	b.pods(1)
	require.Contains(t, b.focused(), "batch-night", "without a next row, the one before")
	night := placed(consumerID, "", b.focused(), time.Now(), 0)

	// The pod's row disappears while its explanation is open.
	b.click(`.placements tbody button.link`)
	b.until(`document.querySelectorAll('dialog .verdicts tbody tr').length > 0`, "the verdicts are shown")
	assign(night)
	b.until(`document.querySelector('#placements').textContent.includes('No pod fits')`, "no pod waits")
	b.do(chromedp.KeyEvent("\x1b"))
	b.until(`!document.querySelector('dialog')`, "the dialog is closed")
	focused("Placements", "the keyboard is at the list that the explanation was of")

	federation.place(night)
	b.pods(1)
	evaluate[chromedp.Void](b, `document.querySelector('.placements .link').focus()`)
	assign(night)
	b.until(`document.querySelector('#placements').textContent.includes('No pod fits')`, "no pod waits")
	focused("Placements", "the keyboard is at the list when its last row has gone")

	// A switch that the user sets stays in its place. Switches that others set move.
	b.choose("Enablement", "true")
	b.rows(3)
	b.click(switchOf("helsinki-dc1"))
	b.until(turned("helsinki-dc1", false), "the switch is off")
	federation.set("milan-edge", "enabled", "", false)
	b.rows(2)
	require.True(t, evaluate[bool](b, turned("helsinki-dc1", false)), "it is still there")
	require.Contains(t, b.focused(), "helsinki-dc1")
	b.choose("Readiness", "true")
	b.rows(1)
}

// With more pods than the page shows, only the API knows the total. It must not be asked for every event.
func TestWhatIsNotShownIsCounted(t *testing.T) {
	t.Parallel() // It waits for the page's periodic reads.
	federation := large(3, 150)
	b, _ := signedIn(t, federation, operatorToken)
	counted := func(pods int) {
		t.Helper()
		b.until(fmt.Sprintf(`document.querySelector('#placements .more')?.textContent.startsWith('100 of %d pods')`, pods),
			fmt.Sprintf("%d pods are counted", pods))
	}
	counted(150)
	last := placed("zoo", "provider-0000", "last", time.Now(), 0)
	federation.place(last)
	counted(151)
	counts := func() []time.Time {
		return federation.times(func(call string) bool { return call == "placements?limit=1" })
	}
	before := len(counts())
	require.Eventually(t, func() bool {
		federation.place(last)
		return len(counts()) >= before+2
	}, patience, 10*time.Millisecond, "it is not counted again")
	two := counts()[before:]
	// The page waits 5 s between two counts. How long a call takes does not depend on the page.
	require.Greater(t, two[1].Sub(two[0]), 4*time.Second, "it is counted too often")
	federation.remove(last.Namespace, last.Pod)
	counted(150)
}
