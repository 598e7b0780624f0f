import { html, useMemo, useRef } from './ui.js';
import { useSuccessor } from './focus.js';
import { useWatched } from './observable.js';
import { Ago, Badge, Choice, Empty, More, ProblemNote, Search, Skeleton } from './parts.js';

const phases = { Running: 'good', Succeeded: 'quiet', Pending: 'warn', Failed: 'bad', Unknown: 'warn' };

/** Where pods are. @param {{federation: object, explain: (placement: object) => void}} props */
export function Placements({ federation, explain }) {
  const { placements: list, me, client } = federation;
  useWatched(list);
  if (!me?.can.placements) {
    return null;
  }
  return html`
    <section class="panel" id="placements" aria-labelledby="placements-title">
      <header class="bar">
        <h2 id="placements-title" tabindex="-1">Placements</h2>
        <${Filters} list=${list} client=${client} />
      </header>
      ${list.problem && html`<${ProblemNote} problem=${list.problem} again=${() => list.again(client)} />`}
      ${list.items.length > 0 && html`
        <${Table} list=${list} mine=${!!me.consumer} explain=${me.can.explain ? explain : undefined} />`}
      ${list.items.length === 0 && !list.problem &&
        (list.loading || list.more ? html`<${Skeleton} />` : html`<${None} query=${list.query} />`)}
      ${list.items.length > 0 && html`<${More} list=${list} noun="pod" next=${() => list.next(client)} />`}
    </section>`;
}

function None({ query }) {
  return Object.values(query).some((value) => value)
    ? html`<${Empty} title="No pod fits">Nothing is found by this search. Try fewer words or filters.<//>`
    : html`<${Empty} title="No pods">A pod that is bound to the broker's node appears here.<//>`;
}

function Filters({ list, client }) {
  const { query } = list;
  const find = (change) => list.find(client, { ...list.query, ...change });
  const states = [['', 'State: any'], ['waiting', 'Waiting'], ...Object.keys(phases).map((phase) => [phase, phase])];
  const state = query.waiting ? 'waiting' : query.phase ?? '';
  return html`
    <div class="filters" role="search" aria-label="Placements">
      ${query.provider && html`
        <button type="button" class="chip" aria-label="At ${query.provider}: remove this filter"
          onClick=${() => find({ provider: '' })}>
          at ${query.provider} <span aria-hidden="true">×</span>
        </button>`}
      <${Search} label="Search pods" value=${query.q} found=${(q) => find({ q })} />
      <${Choice} label="State of pods" value=${state} options=${states}
        chosen=${(value) => find({ waiting: value === 'waiting' || '', phase: value === 'waiting' ? '' : value })} />
    </div>`;
}

function Table({ list, mine, explain }) {
  return html`
    <table role="table" class="placements">
      <thead role="rowgroup">
        <tr role="row">
          <th role="columnheader" scope="col">Pod</th>
          <th role="columnheader" scope="col">Namespace</th>
          ${!mine && html`<th role="columnheader" scope="col">From</th>`}
          <th role="columnheader" scope="col">Provider</th>
          <th role="columnheader" scope="col">State</th>
          <th role="columnheader" scope="col" class="number">Score</th>
          <th role="columnheader" scope="col" class="number">For</th>
          <th role="columnheader" scope="col">Decision</th>
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${list.items.map((placement) => html`
          <${Row} key=${list.key(placement)} placement=${placement} mine=${mine} explain=${explain} />`)}
      </tbody>
    </table>`;
}

/** Drawn anew only when something of this pod changed. */
function Row({ placement, mine, explain }) {
  const row = useRef(null);
  useSuccessor(row, 'placements-title');
  return useMemo(() => {
    const { namespace, pod, consumer, provider, movingFrom, phase, ready, score, since, created } = placement;
    return html`
      <tr role="row" ref=${row}>
        <th role="rowheader" scope="row">
          ${explain
            ? html`
              <button type="button" class="link" aria-haspopup="dialog" onClick=${() => explain(placement)}>
                ${pod}
              </button>`
            : html`<span class="name">${pod}</span>`}
        </th>
        <td role="cell" class="muted whole">${namespace}</td>
        ${!mine && html`
          <td role="cell" data-label="From">${consumer ?? html`<span class="muted">this cluster</span>`}</td>`}
        <td role="cell" data-label="Provider">
          ${provider ?? html`<span class="muted">none yet</span>`}
          ${movingFrom && html` <span class="muted">from ${movingFrom}</span>`}
        </td>
        <td role="cell" data-label="State"><${State} ...${{ provider, movingFrom, phase, ready }} /></td>
        <td role="cell" data-label="Score" class="number score">${score ?? '–'}</td>
        <td role="cell" data-label="For" class="number"><${Ago} at=${since ?? created} /></td>
        <td role="cell" class="why whole">${placement.decision ?? placement.message ?? ''}</td>
      </tr>`;
  }, [placement, mine, !!explain]);
}

function State({ provider, movingFrom, phase, ready }) {
  if (movingFrom) {
    return html`<${Badge} kind="warn">Moving<//>`;
  }
  if (!provider && phase === 'Pending') {
    return html`<${Badge} kind="warn">Waiting<//>`;
  }
  return phase === 'Running' && !ready
    ? html`<${Badge} kind="warn">Not ready<//>` : html`<${Badge} kind=${phases[phase] ?? 'quiet'}>${phase}<//>`;
}
