import { html, useEffect, useState } from './ui.js';
import { Badge, Dialog, ProblemNote, Skeleton } from './parts.js';
import { price } from './format.js';

/** Why a pod is where it is, or waits. @param {{federation: object, placement: object, close: () => void}} props */
export function Explanation({ federation, placement: { namespace, pod }, close }) {
  const [{ found, problem }, set] = useState({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    set({});
    federation.explain(namespace, pod, abort.signal)
      .then((answer) => set({ found: answer }), (err) => abort.signal.aborted || set({ problem: err }));
    return () => abort.abort();
  }, [namespace, pod, turn]);
  return html`
    <${Dialog} title=${pod} wide close=${close}>
      <p class="muted">in ${namespace}</p>
      ${problem && html`<${ProblemNote} problem=${problem} again=${() => setTurn(turn + 1)} />`}
      ${!found && !problem && html`<${Skeleton} rows="4" />`}
      ${found && html`<${Verdicts} found=${found} />`}
    <//>`;
}

function Verdicts({ found: { assignedTo, chosen, policy, message, providers } }) {
  const plugins = [...new Set(providers.flatMap(({ points }) => Object.keys(points ?? {})))].sort();
  const ordered = [...providers].sort((a, b) =>
    !!a.filtered - !!b.filtered || b.score - a.score || (a.provider < b.provider ? -1 : 1));
  const winner = ordered.find(({ provider, filtered }) => !filtered && provider === chosen);
  return html`
    <p class="verdict">${message}</p>
    <dl class="facts">
      <div><dt>Runs at</dt><dd>${assignedTo ?? 'nowhere yet'}</dd></div>
      <div><dt>Would be chosen now</dt><dd>${chosen ?? 'none'}</dd></div>
      <div><dt>Policy</dt><dd>${policy ?? 'none: the defaults'}</dd></div>
    </dl>
    ${providers.length > 0 && html`
      <div class="scroll" tabindex="0" role="region" aria-label="Verdict on every provider">
        <table class="plain verdicts">
          <caption class="hidden">Verdict on every provider</caption>
          <thead>
            <tr>
              <th scope="col">Provider</th><th scope="col">Verdict</th>
              ${plugins.map((name) => html`<th key=${name} scope="col" class="number">${name}</th>`)}
              <th scope="col" class="number">Total</th><th scope="col" class="number">Cost</th>
            </tr>
          </thead>
          <tbody>
            ${ordered.map((choice) => html`
              <${Verdict} key=${choice.virtualNode ?? choice.provider} choice=${choice} plugins=${plugins}
                won=${choice === winner}
                slices=${providers.filter(({ provider }) => provider === choice.provider).length} />`)}
          </tbody>
        </table>
      </div>
      <p class="muted">Points by criterion, out of 100 in all. Cost is the price of an hour of the pod.</p>`}`;
}

function Verdict({ choice, plugins, won, slices }) {
  const { provider, virtualNode, filtered, score, points = {}, hourlyCost, currency } = choice;
  return html`
    <tr class=${won ? 'won' : filtered ? 'off' : ''}>
      <th scope="row">${provider}${slices > 1 && html`<span class="muted namespace">${virtualNode}</span>`}</th>
      ${filtered
        ? html`<td colspan=${plugins.length + 2}>${filtered}</td>`
        : html`
          <td>${won ? html`<${Badge} kind="good">Chosen<//>` : html`<${Badge}>Fits<//>`}</td>
          ${plugins.map((name) => html`<td key=${name} class="number">${points[name] ?? 0}</td>`)}
          <td class="number"><b>${score}</b></td>`}
      <td class="number">${price(hourlyCost, currency)}</td>
    </tr>`;
}
