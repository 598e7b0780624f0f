import { html } from './ui.js';
import { useWatched } from './observable.js';
import { More, ProblemNote } from './parts.js';
import { count } from './format.js';

/** The policies, in short; nothing as long as there are none. @param {{federation: object}} props */
export function Policies({ federation: { policies: list, me, client } }) {
  useWatched(list);
  if (!me?.can.policies || (list.items.length === 0 && !list.problem)) {
    return null;
  }
  return html`
    <section class="panel" aria-labelledby="policies-title">
      <header class="bar"><h2 id="policies-title">Policies</h2></header>
      ${list.problem && html`<${ProblemNote} problem=${list.problem} again=${() => list.again(client)} />`}
      <table role="table" class="policies">
        <thead role="rowgroup">
          <tr role="row">
            <th role="columnheader" scope="col">Policy</th>
            <th role="columnheader" scope="col">For pods of</th>
            <th role="columnheader" scope="col">Providers</th>
            <th role="columnheader" scope="col">Preference</th>
            <th role="columnheader" scope="col" class="number">Pods</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          ${list.items.map((policy) => html`<${Row} key=${policy.name} policy=${policy} />`)}
        </tbody>
      </table>
      ${list.more && html`<${More} list=${list} noun="policy" next=${() => list.next(client)} />`}
    </section>`;
}

function Row({ policy }) {
  const { name, priority, consumers, providers, filter, score, weights = [], selection, failover, pods } = policy;
  const weighed = weights.map((one) => `${one.name} ${one.weight}`).join(', ');
  const preference = [weighed, failover === 'Never' && 'never moved'].filter(Boolean);
  return html`
    <tr role="row">
      <th role="rowheader" scope="row">
        <span class="name">${name}</span>
        <span class="muted namespace">priority ${priority}</span>
      </th>
      <td role="cell" data-label="For pods of">${consumers?.join(', ') ?? 'all consumers'}</td>
      <td role="cell" data-label="Providers">
        ${selection ? selected(selection) : providers?.join(', ') ?? 'any'}
        ${filter && html`<code>${filter}</code>`}
      </td>
      <td role="cell" data-label="Preference">
        ${preference.length || score ? preference.join('; ') : 'the defaults'}
        ${score && html`<code>${score}</code>`}
      </td>
      <td role="cell" data-label="Pods" class="number">${count(pods)}</td>
    </tr>`;
}

function selected({ mode, providers = [] }) {
  const names = providers.join(', ');
  if (mode === 'Only') {
    return names ? `only ${names}` : 'none';
  }
  return names ? `all but ${names}` : 'all';
}
