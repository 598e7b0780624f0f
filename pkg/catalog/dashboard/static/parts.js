// Small pieces that several parts of the page are made of.
import { html, useEffect, useLayoutEffect, useRef, useState } from './ui.js';
import { Observable, useWatched } from './observable.js';
import { counted, duration, moment } from './format.js';

/** A pill: good, bad, warn or quiet. It always has a word besides the colour. */
export function Badge({ kind = 'quiet', children }) {
  return html`<span class="badge ${kind}">${children}</span>`;
}

/** What went wrong, in words. @param {{problem: import('./api.js').Problem, again?: () => void}} props */
export function ProblemNote({ problem, again }) {
  return html`
    <div class="problem" role="alert">
      <strong>${problem.title ?? 'Something went wrong'}</strong>
      ${problem.message !== problem.title && html`<p>${problem.message}</p>`}
      ${again && html`<button type="button" class="quiet" onClick=${again}>Try again</button>`}
    </div>`;
}

/** What is said in place of what there is not. */
export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong><p>${children}</p></div>`;
}

/** A field to search in; it reports a change once nothing was typed for a moment. */
export function Search({ label, value = '', found }) {
  const [text, setText] = useState(value);
  const reported = useRef(value);
  useEffect(() => {
    // What was reported comes back as the value, when the person may have typed on. Anything else is from elsewhere.
    if (value !== reported.current) {
      reported.current = value;
      setText(value);
    }
  }, [value]);
  useEffect(() => {
    const wanted = text.trim();
    if (wanted === reported.current) {
      return undefined;
    }
    const pause = setTimeout(() => {
      reported.current = wanted;
      found(wanted);
    }, 250);
    return () => clearTimeout(pause);
  }, [text]);
  return html`
    <input type="search" class="search" placeholder=${label} aria-label=${label} value=${text} autocomplete="off"
      spellcheck=${false} onInput=${(e) => setText(e.currentTarget.value)} />`;
}

/** @param {{label: string, value: string, options: [string, string][], chosen: (value: string) => void}} props */
export function Choice({ label, value = '', options, chosen }) {
  return html`
    <select aria-label=${label} value=${value} onChange=${(e) => chosen(e.currentTarget.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select>`;
}

/** How much of a list is shown, and the button for more. */
export function More({ list, noun, next }) {
  const { items, total, more, coming } = list;
  const all = counted(total, noun);
  return html`
    <div class="more">
      <span class="muted">${items.length < total ? `${items.length} of ${all}` : all}</span>
      ${more && html`
        <button type="button" aria-busy=${coming} onClick=${next}>${coming ? 'Loading…' : 'Load more'}</button>`}
    </div>`;
}

/** Rows of grey while the first answer is under way. */
export function Skeleton({ rows = 3 }) {
  return html`
    <div class="skeleton" aria-busy="true">
      <span class="hidden">Loading…</span>
      ${Array.from({ length: rows }, (_, i) => html`<span key=${i} class="row"></span>`)}
    </div>`;
}

/** A dialog that is open as long as it is there. Escape, its button and a click beside it close it. */
export function Dialog({ title, close, wide, children }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    const { current } = dialog;
    const title = document.activeElement?.closest('section')?.querySelector('h2');
    current.showModal();
    return () => {
      current.close(); // One that is only taken away does not give the focus back.
      if (document.activeElement === document.body || current.contains(document.activeElement)) {
        title?.focus(); // What opened it has gone.
      }
    };
  }, []);
  // The event comes after the dialog, when it is taken away; another one may be open by then.
  const closed = () => dialog.current && close();
  return html`
    <dialog ref=${dialog} class=${wide ? 'wide' : ''} aria-labelledby="dialog-title" onClose=${closed}
      onClick=${(e) => e.target === dialog.current && dialog.current.close()}>
      <div class="dialog">
        <header>
          <h2 id="dialog-title">${title}</h2>
          <button type="button" class="icon" aria-label="Close" onClick=${() => dialog.current.close()}>
            <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M3.5 3.5l9 9m0-9l-9 9" /></svg>
          </button>
        </header>
        ${children}
      </div>
    </dialog>`;
}

class Clock extends Observable {
  constructor() {
    super();
    setInterval(() => this.changed(), 15_000);
  }
}

const clock = new Clock();

/** How long ago something was. */
export function Ago({ at }) {
  useWatched(clock);
  return at ? html`<time datetime=${at} title=${moment(at)}>${duration(Date.now() - new Date(at))}</time>` : '–';
}
