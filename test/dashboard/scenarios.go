package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

// Target is a catalog whose dashboard is tested.
type Target struct {
	// URL is the address of the catalog, with a slash at the end.
	URL string
	// Client is for the API of the same catalog, to check the effects of the dashboard; nil for the default client.
	Client *http.Client
	// Consumer is the id of a consumer. ConsumerToken belongs to a user who acts for it by default, OperatorToken to an
	// operator who may act for it.
	Consumer                     string
	ConsumerToken, OperatorToken string
	// Provider is an enabled provider that the consumer has selected. Both are restored in the end.
	Provider string
	// Namespace and Pod name a pod of the consumer.
	Namespace, Pod string
	// Stop stops the catalog, Start restarts it at the same address.
	Stop, Start func()
	// Screenshots is the directory for pictures; "" for none.
	Screenshots string
	// WithoutLooks skips the checks that depend only on the page, not on the catalog.
	WithoutLooks bool
}

// Scenarios runs all scenarios of the dashboard against a catalog.
func Scenarios(t *testing.T, target Target) {
	browser := startBrowser(t)
	if target.Client == nil {
		target.Client = http.DefaultClient
	}
	type scenario struct {
		name string
		run  func(*testing.T, context.Context, *Target)
	}
	scenarios := []scenario{
		{"a stranger sees providers, no switch, and is refused", strangerIsRefused},
		{"a wrong token is not accepted", wrongToken},
		{"a consumer switches a provider off, and on with the keyboard alone", consumerSwitches},
		{"changes by others are shown without a reload", othersAreSeen},
		{"an operator disables a provider for all consumers", operatorDisables},
		{"an operator acts for a consumer", operatorActsForConsumer},
		{"a pod's explanation is shown", explanationIsShown},
		{"the restart of the catalog is survived", restart},
	}
	if !target.WithoutLooks {
		scenarios = append(scenarios,
			scenario{"the theme is the system's, or the one chosen", themes},
			scenario{"a phone has no sideways scrolling", phone},
			scenario{"there is no serious barrier", accessible})
	}
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) { scenario.run(t, browser, &target) })
	}
}

// provider reads the provider from the API, not from the page.
func (target *Target) provider(ctx context.Context, token string) (api.Provider, error) {
	var list api.ProviderList
	if err := target.call(ctx, token, http.MethodGet, "providers?q="+target.Provider, nil, &list); err != nil {
		return api.Provider{}, err
	}
	for _, p := range list.Items {
		if p.ID == target.Provider {
			return p, nil
		}
	}
	return api.Provider{}, fmt.Errorf("there is no provider %s", target.Provider)
}

func (target *Target) call(ctx context.Context, token, method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, target.URL+"api/v1/"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := target.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// selected waits until the API shows whether the consumer has selected the provider.
func (target *Target) selected(t *testing.T, wanted bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		p, err := target.provider(t.Context(), target.ConsumerToken)
		return err == nil && p.Selected != nil && *p.Selected == wanted
	}, patience, 100*time.Millisecond, "selected is not %v for the consumer", wanted)
}

// enabled waits until the API shows whether the provider is enabled.
func (target *Target) enabled(t *testing.T, wanted bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		p, err := target.provider(t.Context(), target.OperatorToken)
		return err == nil && p.Enabled == wanted
	}, patience, 100*time.Millisecond, "enabled is not %v", wanted)
}

func strangerIsRefused(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	require.Zero(t, b.count(`[role=switch]`))
	require.Contains(t, b.text(), "Sign in to choose providers")
	require.Zero(t, b.count(`#placements, .flow`), "pods are not for strangers")
	for _, field := range []string{"selected", "enabled"} {
		status := evaluate[int](b, fmt.Sprintf(`fetch('api/v1/providers/%s/%s', {
			method: 'PUT', headers: {'Content-Type': 'application/json'}, body: '{"%s": false}',
		}).then((response) => response.status)`, target.Provider, field, field))
		require.Equal(t, http.StatusUnauthorized, status, field)
	}
	target.enabled(t, true)
	target.selected(t, true)
	b.screenshot(target.Screenshots, "stranger")
}

func wrongToken(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.click(`.account`)
	b.do(chromedp.WaitVisible(chromedp.CSS(`#token`)), chromedp.KeyEvent("invalid\r"))
	b.until(`!!document.querySelector('dialog [role=alert]')`, "the dialog shows that it is refused")
	b.screenshot(target.Screenshots, "sign-in")
	require.Empty(t, evaluate[string](b, `sessionStorage.getItem('catalog') ?? ''`))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`!document.querySelector('dialog')`, "Escape closes the dialog")
	b.until(`document.querySelector('.account').textContent === 'Sign in'`, "no user is signed in")
}

func consumerSwitches(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.ConsumerToken)
	b.until(turned(target.Provider, true), "the provider is on")
	b.screenshot(target.Screenshots, "light")

	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, false), "the switch is off")
	b.until(fmt.Sprintf(`document.querySelector('.notice [role=status]').textContent.startsWith('%s is off')`,
		target.Provider), "a notice reports it")
	target.selected(t, false)

	// With the keyboard alone, from the top of a reloaded page.
	b.do(chromedp.Reload())
	b.until(turned(target.Provider, false), "it is off after loading the page again")
	name := target.Provider + ": selected by me"
	for presses := 0; b.focused() != name; presses++ {
		require.Less(t, presses, 200, "Tab never comes to the switch")
		b.do(chromedp.KeyEvent(kb.Tab))
		require.True(t, evaluate[bool](b, `document.activeElement.matches('body, :focus-visible')`))
	}
	b.do(chromedp.KeyEvent(" "))
	b.until(turned(target.Provider, true), "the switch is on")
	target.selected(t, true)
	require.Equal(t, name, b.focused(), "the focus stays")
}

func othersAreSeen(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	for _, enabled := range []bool{false, true} {
		var answer api.Provider
		require.NoError(t, target.call(t.Context(), target.OperatorToken, http.MethodPut,
			"providers/"+target.Provider+"/enabled", map[string]bool{"enabled": enabled}, &answer))
		b.until(fmt.Sprintf(`[...document.querySelectorAll('.providers tr')]
			.find((row) => row.querySelector('.name')?.textContent === %q)
			.textContent.includes('Disabled') === %v`, target.Provider, !enabled),
			fmt.Sprintf("the provider is shown with enabled=%v", enabled))
	}
}

func operatorDisables(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.OperatorToken)
	for _, enabled := range []bool{false, true} {
		b.click(switchOf(target.Provider))
		b.until(turned(target.Provider, enabled), fmt.Sprintf("the switch is %v", enabled))
		target.enabled(t, enabled)
	}
	b.until(`!!document.querySelector('.flow svg')`, "the picture of the flow is there")
	b.click(`.disclose`)
	b.until(`!!document.querySelector('tr.details .facts')`, "the details are shown")
	b.screenshot(target.Screenshots, "operator")
	b.click(`.account`)
	b.click(`dialog .sign-out`)
	b.until(`document.querySelectorAll('[role=switch], #placements').length === 0`, "a stranger sees no switch and no pod")
	require.NotContains(t, evaluate[string](b, `sessionStorage.getItem('catalog') ?? ''`), target.OperatorToken)
}

func operatorActsForConsumer(t *testing.T, browser context.Context, target *Target) {
	b := newTab(t, browser, target.URL)
	b.open()
	b.signIn(target.OperatorToken)
	b.click(`.account`)
	b.click(`#consumer`)
	b.do(chromedp.KeyEvent("no-such-consumer\r"))
	b.until(`!!document.querySelector('dialog [role=alert]')`, "it is said that this is not to be")
	evaluate[chromedp.Void](b, `document.querySelector('#consumer').select()`)
	b.do(chromedp.KeyEvent(target.Consumer + "\r"))
	b.until(fmt.Sprintf(`document.querySelector('.account').textContent === 'for %s'`, target.Consumer),
		"the operator acts for the consumer")
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, false), "the switch is off")
	target.selected(t, false)
	target.enabled(t, true) // For other consumers nothing changes.
	b.click(switchOf(target.Provider))
	b.until(turned(target.Provider, true), "the switch is on")
	target.selected(t, true)
}

// openExplanation searches for the pod, and clicks on it.
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
	require.GreaterOrEqual(t, b.count(`dialog .verdicts tbody tr`), b.count(`.providers tbody tr`))
	require.Equal(t, 1, b.count(`dialog .verdicts tr.won`), "one provider is chosen")
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
	b.until(`!!document.querySelector('.flow svg') && !!document.querySelector('.placements tbody tr')`, "all is drawn")
	fits("the page")
	tallest := evaluate[int](b, `Math.max(...[...document.querySelectorAll('.disclose')].map((e) => e.offsetHeight))`)
	require.LessOrEqual(t, tallest, 60, "names are not squeezed")
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
	b.until(`document.querySelector('.stream').textContent === 'Not live'`, "the page shows that it is not live")
	b.until(`document.querySelector('.note.bad').textContent.includes('may be old')`, "it shows what that means")
	b.screenshot(target.Screenshots, "lost")
	require.Positive(t, b.count(`.providers tbody tr`), "what was known is still shown")
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
