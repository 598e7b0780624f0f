package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// Target is a catalog whose dashboard is to be tried.
type Target struct {
	// URL is where it is, with a slash at the end.
	URL string
	// Client reaches the API of the same catalog, to see what the dashboard really did; nil for the usual one.
	Client *http.Client
	// Consumer is the id of a consumer. ConsumerToken is of somebody who acts for it by default, OperatorToken of an
	// operator who may, too.
	Consumer                     string
	ConsumerToken, OperatorToken string
	// Provider is one that the consumer has selected, and that is enabled; both is so again in the end.
	Provider string
	// Namespace and Pod are of a pod of the consumer.
	Namespace, Pod string
	// Stop ends the catalog, Start starts it again at the same address.
	Stop, Start func()
	// Screenshots is where pictures are left; "" for none.
	Screenshots string
}

// Scenarios tries all that the dashboard must do against a catalog.
func Scenarios(t *testing.T, target Target) {
	browser := startBrowser(t)
	if target.Client == nil {
		target.Client = http.DefaultClient
	}
	for _, scenario := range []struct {
		name string
		run  func(*testing.T, context.Context, *Target)
	}{
		{"a stranger sees providers, no switch, and is refused", strangerIsRefused},
		{"a wrong token is not accepted", wrongToken},
		{"a consumer switches a provider off, and on with the keyboard alone", consumerSwitches},
		{"an operator disables a provider for everybody", operatorDisables},
		{"an operator acts for a consumer", operatorActsForConsumer},
		{"a pod's explanation is shown", explanationIsShown},
		{"the theme is the system's, or the one chosen", themes},
		{"a phone has no sideways scrolling", phone},
		{"the restart of the catalog is survived", restart},
		{"there is no serious barrier", accessible},
	} {
		t.Run(scenario.name, func(t *testing.T) { scenario.run(t, browser, &target) })
	}
}

// provider asks the API, not the page.
func (target *Target) provider(t *testing.T, token string) api.Provider {
	t.Helper()
	// Every catalog has the list of providers; the single provider is the same there.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target.URL+"api/v1/providers?q="+target.Provider, nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := target.Client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	var list api.ProviderList
	require.NoError(t, json.Unmarshal(body, &list))
	for _, p := range list.Items {
		if p.ID == target.Provider {
			return p
		}
	}
	require.Fail(t, "no provider "+target.Provider)
	return api.Provider{}
}

func (target *Target) selected(t *testing.T, wanted bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		selected := target.provider(t, target.ConsumerToken).Selected
		return selected != nil && *selected == wanted
	}, patience, 100*time.Millisecond, "selected is not %v for the consumer", wanted)
}

func strangerIsRefused(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	require.Zero(t, evaluate[int](b, `document.querySelectorAll('[role=switch]').length`))
	require.Contains(t, b.text(), "Sign in to choose providers")
	require.Zero(t, evaluate[int](b, `document.querySelectorAll('#placements, .flow').length`), "pods are not for strangers")
	for _, field := range []string{"selected", "enabled"} {
		status := evaluate[int](b, fmt.Sprintf(
			`fetch('api/v1/providers/%s/%s', {method: 'PUT', headers: {'Content-Type': 'application/json'}, body: '{"%s": false}'}).then((r) => r.status)`,
			target.Provider, field, field))
		require.Equal(t, http.StatusUnauthorized, status, field)
	}
	require.True(t, target.provider(t, "").Enabled)
	target.selected(t, true)
	b.screenshot(target.Screenshots, "stranger")
}

func wrongToken(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.click(`.account`)
	b.do(chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.KeyEvent("nobody's\r"))
	b.until(`!!document.querySelector('dialog [role=alert]')`, "the dialog says that it is refused")
	b.screenshot(target.Screenshots, "sign-in")
	require.Empty(t, evaluate[string](b, `sessionStorage.getItem('catalog') ?? ''`))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector('dialog')`, "Escape closes the dialog")
	b.until(`document.querySelector('.account').textContent === 'Sign in'`, "nobody is signed in")
}

func consumerSwitches(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.ConsumerToken)
	b.until(turned(target.Provider, true), "the provider is on")
	b.screenshot(target.Screenshots, "light")

	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, false), "the switch is off")
	b.until(fmt.Sprintf(`document.querySelector('.notice [role=status]').textContent.startsWith('%s is off')`, target.Provider), "it is told")
	target.selected(t, false)

	// With the keyboard alone, from the top of the page of somebody who comes back.
	b.do(chromedp.Reload())
	b.until(turned(target.Provider, false), "it is off after loading the page again")
	name := target.Provider + ": selected by me"
	for presses := 0; b.focused() != name; presses++ {
		require.Less(t, presses, 200, "Tab never comes to the switch")
		b.do(chromedp.KeyEvent(kb.Tab))
		require.True(t, evaluate[bool](b, `document.activeElement === document.body || document.activeElement.matches(':focus-visible')`))
	}
	b.do(chromedp.KeyEvent(" "))
	b.until(turned(target.Provider, true), "the switch is on")
	target.selected(t, true)
	require.Equal(t, name, b.focused(), "the focus stays")

	// What somebody else does is seen without asking.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, target.URL+"api/v1/providers/"+target.Provider+"/enabled",
		strings.NewReader(`{"enabled": false}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+target.OperatorToken)
	request.Header.Set("Content-Type", "application/json")
	shown := fmt.Sprintf(`[...document.querySelectorAll('.providers tr')].find((row) => row.querySelector('.name')?.textContent === %q)?.textContent.includes('Disabled')`, target.Provider)
	for _, enabled := range []bool{false, true} {
		request.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"enabled": %v}`, enabled)))
		request.ContentLength = int64(len(fmt.Sprintf(`{"enabled": %v}`, enabled)))
		response, err := target.Client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		b.until(fmt.Sprintf(`%s === %v`, shown, !enabled), fmt.Sprintf("the provider is shown with enabled=%v", enabled))
	}
}

func operatorDisables(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.OperatorToken)
	for _, enabled := range []bool{false, true} {
		b.click(switchOf(target.Provider))
		b.until(turned(target.Provider, enabled), fmt.Sprintf("the switch is %v", enabled))
		require.Eventually(t, func() bool { return target.provider(t, "").Enabled == enabled }, patience, 100*time.Millisecond)
	}
	b.until(`!!document.querySelector('.flow svg')`, "the picture of the flow is there")
	b.click(`.disclose`)
	b.until(`!!document.querySelector('tr.details .facts')`, "the details are shown")
	b.screenshot(target.Screenshots, "operator")
	b.click(`.account`)
	b.until(`[...document.querySelectorAll('dialog button')].some((button) => button.textContent === 'Sign out')`, "one can sign out")
	evaluate[chromedp.Void](b, `[...document.querySelectorAll('dialog button')].find((button) => button.textContent === 'Sign out').click()`)
	b.until(`document.querySelectorAll('[role=switch], #placements').length === 0`, "a stranger sees no switch and no pod")
	require.NotContains(t, evaluate[string](b, `sessionStorage.getItem('catalog') ?? ''`), target.OperatorToken)
}

func operatorActsForConsumer(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.OperatorToken)
	b.click(`.account`)
	b.do(chromedp.WaitVisible(chromedp.CSS(`#consumer`)), chromedp.Focus(chromedp.CSS(`#consumer`)), chromedp.KeyEvent("no-such-consumer\r"))
	b.until(`!!document.querySelector('dialog [role=alert]')`, "it is said that this is not to be")
	evaluate[chromedp.Void](b, `document.querySelector('#consumer').select()`)
	b.do(chromedp.KeyEvent(target.Consumer + "\r"))
	b.until(fmt.Sprintf(`document.querySelector('.account').textContent === 'for %s'`, target.Consumer), "the operator acts for the consumer")
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, false), "the switch is off")
	target.selected(t, false)
	require.True(t, target.provider(t, "").Enabled, "for others nothing changes")
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, true), "the switch is on")
	target.selected(t, true)
}

// openExplanation finds the pod by searching, and clicks on it.
func (b *tab) openExplanation(target *Target) {
	b.t.Helper()
	b.click(`#placements .search`)
	b.do(chromedp.KeyEvent(target.Pod))
	b.until(`document.querySelectorAll('.placements tbody tr').length === 1`, "the search finds one pod")
	b.click(`.placements tbody button.link`)
	b.until(`document.querySelectorAll('dialog .verdicts tbody tr').length > 0`, "the verdicts are shown")
}

func explanationIsShown(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.ConsumerToken)
	b.openExplanation(target)
	require.Equal(t, target.Pod, evaluate[string](b, `document.querySelector('dialog h2').textContent`))
	providers := evaluate[int](b, `document.querySelectorAll('.providers tbody tr').length`)
	require.GreaterOrEqual(t, evaluate[int](b, `document.querySelectorAll('dialog .verdicts tbody tr').length`), providers)
	require.Equal(t, 1, evaluate[int](b, `document.querySelectorAll('dialog .verdicts tr.won').length`), "one provider is chosen")
	b.screenshot(target.Screenshots, "explanation")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector('dialog')`, "Escape closes the dialog")
	require.Equal(t, target.Pod, b.focused(), "the focus comes back")
}

func themes(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.prefer("dark")
	b.open()
	brightness := `(([r, g, b]) => r + g + b)(getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number))`
	require.Less(t, evaluate[int](b, brightness), 200, "it is dark as the system is")
	b.signIn(target.ConsumerToken)
	b.until(`!!document.querySelector('.flow svg') && !!document.querySelector('.spark .line')`, "the pictures are drawn")
	b.screenshot(target.Screenshots, "dark")
	b.click(`[aria-label^="Theme"]`)
	require.Greater(t, evaluate[int](b, brightness), 600, "it is light as chosen")
	b.do(chromedp.Reload())
	b.until(`document.querySelectorAll('.providers tbody tr').length > 0`, "providers are shown")
	require.Greater(t, evaluate[int](b, brightness), 600, "the choice is kept")
}

func phone(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateScale(2)))
	b.open()
	b.signIn(target.ConsumerToken)
	fits := func(where string) {
		t.Helper()
		require.LessOrEqual(t, evaluate[int](b, `document.documentElement.scrollWidth`), 360, where)
	}
	b.until(`!!document.querySelector('.flow svg') && document.querySelectorAll('.placements tbody tr').length > 0`, "all is drawn")
	fits("the page")
	require.LessOrEqual(t, evaluate[int](b, `Math.max(...[...document.querySelectorAll('.disclose')].map((name) => name.offsetHeight))`), 60,
		"names are not squeezed")
	b.screenshot(target.Screenshots, "phone")
	b.click(`.disclose`)
	b.until(`!!document.querySelector('tr.details .facts')`, "the details are shown")
	fits("the page with details")
	b.openExplanation(target)
	fits("the page with an explanation")
	b.screenshot(target.Screenshots, "phone-explanation")
}

func restart(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.ConsumerToken)
	evaluate[chromedp.Void](b, `window.loadedOnce = true`)
	target.Stop()
	b.until(`document.querySelector('.stream').textContent === 'Not live' && document.querySelector('.note.bad')?.textContent.includes('may be old')`,
		"the page says that the stream is lost")
	b.screenshot(target.Screenshots, "lost")
	require.Positive(t, evaluate[int](b, `document.querySelectorAll('.providers tbody tr').length`), "what was known is still shown")
	target.Start()
	b.live()
	b.until(`!document.querySelector('.note.bad')`, "nothing is said of a loss any more")
	require.True(t, evaluate[bool](b, `window.loadedOnce === true`), "the page was not loaded again")
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, false), "the switch works")
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, true), "the switch works")
	target.selected(t, true)
}
