import { html, useEffect, useState } from './ui.js';
import { useWatched } from './observable.js';
import { timeOfDay } from './format.js';

/** @param {{federation: object, account: () => void}} props */
export function Header({ federation, account }) {
  const { me } = federation;
  return html`
    <header class="top">
      <div class="inner">
        <a class="skip" href="#providers-title">Skip to the providers</a>
        <img src="favicon.svg" alt="" width="28" height="28" />
        <h1>Federation <span>catalog</span></h1>
        <${StreamState} stream=${federation.stream} />
        <${Theme} />
        <button type="button" class="account" aria-haspopup="dialog" onClick=${account}>
          ${me?.user
            ? html`<span class="who">${me.consumer ? `for ${me.consumer}` : shortName(me.user)}</span>` : 'Sign in'}
        </button>
      </div>
    </header>`;
}

/** The last part of "system:serviceaccount:namespace:name". */
const shortName = (user) => user.split(':').at(-1);

const states = { live: 'Live', opening: 'Connecting', lost: 'Not live', refused: 'Not live' };

function StreamState({ stream }) {
  useWatched(stream);
  return html`
    <span class="stream ${stream.state}">
      <span class="dot" aria-hidden="true"></span>
      <span role="status">${states[stream.state]}</span>
    </span>`;
}

/** What is wrong with the stream, and what becomes of it. */
export function StreamNote({ federation }) {
  const { stream, outdated } = federation;
  useWatched(stream);
  if (stream.state === 'lost') {
    return html`<${Lost} stream=${stream} />`;
  }
  return outdated && html`
    <div class="note" role="status">
      The catalog has a new version.
      <button type="button" class="quiet" onClick=${() => location.reload()}>Load it</button>
    </div>`;
}

/** The seconds that are left change too often to be read out. */
function Lost({ stream }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const left = Math.max(0, Math.ceil((stream.retryAt - Date.now()) / 1000));
  return html`
    <div class="note bad">
      <span role="status">The stream of changes is lost. What is shown may be old: it is of
        ${` ${timeOfDay(stream.heard)}.`}</span>
      <span aria-hidden="true">${left ? `Reconnecting in ${left} s.` : 'Reconnecting…'}</span>
      <button type="button" class="quiet" onClick=${() => stream.retry()}>Reconnect now</button>
    </div>`;
}

const themes = { '': 'System', light: 'Light', dark: 'Dark' };
const icons = {
  '': 'M2.5 3.5h11v7h-11zM6 13.5h4',
  light: 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z' +
    'M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  dark: 'M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1z',
};

/** Goes through the themes; the choice is kept for this browser. */
function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? '');
  const names = Object.keys(themes);
  const turn = () => {
    const next = names[(names.indexOf(theme) + 1) % names.length];
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem('theme', next);
    } catch { /* Storage is switched off: it lasts until the page is loaded again. */ }
    setTheme(next);
  };
  const label = `Theme: ${themes[theme]}`;
  return html`
    <button type="button" class="icon" aria-label=${label} title=${label} onClick=${turn}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d=${icons[theme]} /></svg>
    </button>`;
}
