// The page: what the federation is, drawn anew as it changes.
import { html, render, useEffect, useState } from './ui.js';
import { useWatched } from './observable.js';
import { Account } from './account.js';
import { Explanation } from './explain.js';
import { Federation } from './federation.js';
import { Flow } from './flow.js';
import { Header, StreamNote } from './header.js';
import { Placements } from './placements.js';
import { Policies } from './policies.js';
import { Providers } from './providers.js';

function Page({ federation }) {
  useWatched(federation);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const showPods = (provider) => {
    const { placements, client } = federation;
    placements.find(client, { provider });
    const title = document.getElementById('placements-title');
    title?.scrollIntoView();
    title?.focus({ preventScroll: true });
  };
  return html`
    <${Header} federation=${federation} account=${() => setDialog({ account: true })} />
    <main class="inner">
      <${StreamNote} federation=${federation} />
      <${Flow} federation=${federation} />
      <${Providers} federation=${federation} showPods=${showPods} />
      <${Placements} federation=${federation} explain=${(placement) => setDialog({ placement })} />
      <${Policies} federation=${federation} />
    </main>
    <footer class="inner muted">${federation.me && `liqo-broker-vk ${federation.me.services.version}`}</footer>
    <${Notice} federation=${federation} />
    ${dialog?.account && html`<${Account} federation=${federation} close=${close} />`}
    ${dialog?.placement && html`
      <${Explanation} federation=${federation} placement=${dialog.placement} close=${close} />`}`;
}

/** What the last action came to. Good news goes by itself. */
function Notice({ federation }) {
  const { notice } = federation;
  useEffect(() => {
    const timer = notice && !notice.bad && setTimeout(() => federation.silence(), 6000);
    return () => clearTimeout(timer);
  }, [notice?.id]);
  return html`
    <div class="notice ${notice?.bad ? 'bad' : ''} ${notice ? '' : 'none'}">
      <span role="status">${notice?.text}</span>
      ${notice && html`
        <button type="button" class="icon" aria-label="Dismiss" onClick=${() => federation.silence()}>
          <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M3.5 3.5l9 9m0-9l-9 9" /></svg>
        </button>`}
    </div>`;
}

const federation = new Federation();
addEventListener('online', () => federation.stream.retry());
document.addEventListener('visibilitychange', () => document.hidden || federation.stream.retry());
const app = document.getElementById('app');
app.replaceChildren();
federation.start();
render(html`<${Page} federation=${federation} />`, app);
