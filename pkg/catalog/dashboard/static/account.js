import { html, useState } from './ui.js';
import { Dialog, ProblemNote } from './parts.js';

/**
 * Who the person is to the catalog, and on whose behalf they ask.
 * @param {{federation: object, close: () => void}} props
 */
export function Account({ federation, close }) {
  const { me, client } = federation;
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const become = async (caller) => {
    setBusy(true);
    setProblem(null);
    try {
      await federation.become(caller);
      close();
    } catch (err) {
      setProblem(err);
    } finally {
      setBusy(false);
    }
  };
  const signOut = () => {
    federation.signOut();
    close();
  };
  return html`
    <${Dialog} title=${me?.user ? 'Signed in' : 'Sign in'} close=${close}>
      ${problem && html`<${ProblemNote} problem=${problem} />`}
      ${me?.user
        ? html`<${Known} me=${me} client=${client} busy=${busy} become=${become} signOut=${signOut} />`
        : html`<${Stranger} busy=${busy} become=${become} />`}
    <//>`;
}

/** The value of a form's only field. */
const submitted = (e) => {
  e.preventDefault();
  return new FormData(e.currentTarget).get('value').trim();
};

function Stranger({ busy, become }) {
  return html`
    <p>With a token of the broker's cluster you see what its rights allow: the pods and the choices of a consumer, or
      all.</p>
    <form onSubmit=${(e) => become({ token: submitted(e) })}>
      <label for="token">Token</label>
      <input id="token" name="value" type="password" autocomplete="off" spellcheck=${false} required autofocus />
      <button type="submit" class="primary" disabled=${busy}>${busy ? 'Asking…' : 'Sign in'}</button>
    </form>
    <p class="muted">A token is made by <code>kubectl create token NAME -n NAMESPACE</code>. It is kept in this tab
      only, until you sign out or close it.</p>`;
}

function Known({ me, client, busy, become, signOut }) {
  return html`
    <dl class="facts">
      <div><dt>You are</dt><dd class="long">${me.user}</dd></div>
      <div><dt>Acting for</dt><dd>${me.consumer || 'no consumer'}</dd></div>
    </dl>
    <form onSubmit=${(e) => become({ token: client.token, consumer: submitted(e) })}>
      <label for="consumer">Act for a consumer</label>
      <input id="consumer" name="value" defaultValue=${client.consumer ?? ''} placeholder="its cluster id"
        autocomplete="off" spellcheck=${false} />
      <button type="submit" disabled=${busy}>Act for it</button>
    </form>
    <p class="muted">You may act for a consumer if you may create ResourceSlices in its tenant namespace. Leave it empty
      to act for yourself.</p>
    ${client.token
      ? html`<button type="button" class="sign-out" onClick=${signOut}>Sign out</button>`
      : html`<p class="muted">Your browser's certificate identifies you. To sign in as another user, choose another one
          there.</p>`}`;
}
