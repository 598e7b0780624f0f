import { html, useEffect, useMemo, useRef, useState } from './ui.js';
import { useSuccessor } from './focus.js';
import { useWatched } from './observable.js';
import { Capacity, Latency, Uptime } from './charts.js';
import { Ago, Badge, Choice, Empty, More, ProblemNote, Search, Skeleton } from './parts.js';
import { amount, count, counted, milliseconds, percent, price, quantity } from './format.js';

/**
 * The providers, with what they offer and how well they do.
 * @param {{federation: object, showPods: (provider: string) => void}} props
 */
export function Providers({ federation, showPods }) {
  const { providers: list, histories, me, turning, client } = federation;
  useWatched(list, histories);
  return html`
    <section class="panel" aria-labelledby="providers-title">
      <header class="bar">
        <h2 id="providers-title" tabindex="-1">Providers</h2>
        <${Filters} federation=${federation} />
      </header>
      <${WhoMay} me=${me} />
      ${list.problem && html`<${ProblemNote} problem=${list.problem} again=${() => list.again(client)} />`}
      ${list.items.length > 0 && html`<${Table} ...${{ list, histories, me, turning, federation, showPods }} />`}
      ${list.items.length === 0 && !list.problem &&
        (list.loading || list.more ? html`<${Skeleton} />` : html`<${None} query=${list.query} />`)}
      ${list.items.length > 0 && html`<${More} list=${list} noun="provider" next=${() => list.next(client)} />`}
    </section>`;
}

function None({ query }) {
  return Object.values(query).some((value) => value)
    ? html`<${Empty} title="No provider fits">Nothing is found by this search. Try fewer words or filters.<//>`
    : html`
      <${Empty} title="No providers yet">A cluster that shares resources with the broker appears here by itself.<//>`;
}

function Filters({ federation: { providers: list, client, regions } }) {
  const { query } = list;
  const find = (change) => list.find(client, { ...list.query, ...change });
  const region = [['', 'Region: any'], ...[...regions].sort().map((name) => [name, name])];
  return html`
    <div class="filters" role="search" aria-label="Providers">
      <${Search} label="Search providers" value=${query.q} found=${(q) => find({ q })} />
      <${Choice} label="Readiness" value=${query.ready} chosen=${(ready) => find({ ready })}
        options=${[['', 'Ready: any'], ['true', 'Ready'], ['false', 'Not ready']]} />
      <${Choice} label="Enablement" value=${query.enabled} chosen=${(enabled) => find({ enabled })}
        options=${[['', 'Enabled: any'], ['true', 'Enabled'], ['false', 'Disabled']]} />
      ${regions.size > 1 && html`
        <${Choice} label="Region" value=${query.region} options=${region}
          chosen=${(name) => find({ region: name })} />`}
    </div>`;
}

/** What the switches are for, or why there are none. */
function WhoMay({ me }) {
  if (!me) {
    return null;
  }
  if (me.can.select) {
    return html`<p class="hint">The switches choose which providers the pods of <b>${me.consumer}</b> may go to.</p>`;
  }
  return me.can.enable
    ? html`<p class="hint">The switches enable and disable providers for all consumers.</p>`
    : html`<p class="hint">${me.user ? 'You may look, but not choose providers.' : 'Sign in to choose providers.'}</p>`;
}

function Table({ list, histories, me, turning, federation, showPods }) {
  const can = me?.can ?? {};
  const field = can.select ? 'selected' : can.enable ? 'enabled' : '';
  return html`
    <table role="table" class="providers ${field ? 'switched' : ''}">
      <thead role="rowgroup">
        <tr role="row">
          <th role="columnheader" scope="col">Provider</th>
          <th role="columnheader" scope="col">Assigned of granted</th>
          <th role="columnheader" scope="col">Uptime</th>
          <th role="columnheader" scope="col">Latency</th>
          <th role="columnheader" scope="col" class="number">Price</th>
          ${field && html`<th role="columnheader" scope="col" class="turn">${can.select ? 'Selected' : 'Enabled'}</th>`}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${list.items.map((provider) => html`
          <${Row} key=${provider.id} provider=${provider} history=${histories.get(provider.id)} histories=${histories}
            field=${field} turning=${turning.has(provider.id)} federation=${federation}
            showPods=${can.placements ? showPods : undefined} />`)}
      </tbody>
    </table>`;
}

/** Drawn anew only when something of this provider changed. */
function Row({ provider, history, histories, field, turning, federation, showPods }) {
  const [open, setOpen] = useState(false);
  const row = useRef(null);
  useSuccessor(row, 'providers-title');
  useEffect(() => histories.show(row.current, provider.id), [provider.id]);
  return useMemo(() => html`
    <tr role="row" ref=${row} class=${provider.enabled && provider.ready ? '' : 'off'}>
      <th role="rowheader" scope="row">
        <${Name} provider=${provider} open=${open} turn=${() => setOpen(!open)} />
      </th>
      <td role="cell"><${Capacity} resources=${provider.resources} /></td>
      <td role="cell" data-label="Uptime"><${Uptime} kpis=${provider.kpis} history=${history} /></td>
      <td role="cell" data-label="Latency"><${Latency} kpis=${provider.kpis} history=${history} /></td>
      <td role="cell" data-label="Price" class="number">
        ${price(provider.price, provider.currency)}${provider.price !== undefined && html` <span class="muted">per CPU hour</span>`}
      </td>
      ${field && html`
        <td role="cell" class="turn">
          <button type="button" role="switch" class="switch"
            aria-checked=${String(!!provider[field])} aria-busy=${turning}
            aria-label="${provider.id}: ${field === 'selected' ? 'selected by me' : 'enabled for all consumers'}"
            onClick=${() => federation.turn(provider)}><span class="knob"></span></button>
        </td>`}
    </tr>
    ${open && html`
      <tr role="row" class="details" id=${`details-${provider.id}`}>
        <td role="cell" colspan="6"><${Details} provider=${provider} showPods=${showPods} /></td>
      </tr>`}`, [provider, history, field, turning, open, !!showPods]);
}

function Name({ provider, open, turn }) {
  const { id, region, pods } = provider;
  return html`
    <button type="button" class="disclose" aria-expanded=${open} aria-controls=${open ? `details-${id}` : undefined}
      onClick=${turn}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M6 3.5L10.5 8 6 12.5" /></svg>
      <span class="name">${id}</span>
    </button>
    <div class="under">
      ${provider.ready ? html`<${Badge} kind="good">Ready<//>` : html`<${Badge} kind="bad">Not ready<//>`}
      ${!provider.enabled && html`<${Badge} kind="warn">Disabled<//>`}
      ${provider.cordoned && html`<${Badge} kind="warn">Cordoned<//>`}
      ${provider.draining && html`<${Badge} kind="warn">Draining<//>`}
      <span class="muted">${[region, counted(pods, 'pod')].filter(Boolean).join(' · ')}</span>
    </div>`;
}

function Details({ provider, showPods }) {
  const { kpis, attributes = {}, conditions = [], virtualNodes = [] } = provider;
  const facts = [
    ['Uptime 1 h', percent(kpis.uptime1h)], ['24 h', percent(kpis.uptime24h)], ['7 d', percent(kpis.uptime7d)],
    ['30 d', percent(kpis.uptime30d)], ['Pod start, median', milliseconds(kpis.podStartP50Milliseconds)],
    ['Pod start, 90 %', milliseconds(kpis.podStartP90Milliseconds)], ['Pods that failed', percent(kpis.failureRate)],
    ['Pods moved away', count(kpis.movedAway)], ...Object.entries(attributes),
  ];
  return html`
    <dl class="facts">
      ${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
      <div><dt>Known for</dt><dd><${Ago} at=${provider.created} /></dd></div>
    </dl>
    <div class="tables">
      <${Slices} virtualNodes=${virtualNodes} />
      <${Conditions} conditions=${conditions} />
    </div>
    ${showPods && html`
      <button type="button" class="quiet" onClick=${() => showPods(provider.id)}>
        ${`Show its ${counted(provider.pods, 'pod')}`}
      </button>`}`;
}

const inWords = (resources) =>
  Object.entries(resources).map(([name, left]) => `${amount(name, quantity(left))} ${name}`).join(', ');

function Slices({ virtualNodes }) {
  return virtualNodes.length > 0 && html`
    <div class="scroll" tabindex="0" role="region" aria-label="Slices"><table class="plain">
      <caption>Slices</caption>
      <thead>
        <tr>
          <th scope="col">Virtual node</th><th scope="col">State</th><th scope="col">Pods</th><th scope="col">Free</th>
        </tr>
      </thead>
      <tbody>
        ${virtualNodes.map(({ name, ready, reason, pods, resources: { free = {} } }) => html`
          <tr key=${name}>
            <th scope="row">${name}</th><td>${ready ? 'Ready' : 'Not ready'}${reason && html`<br />${reason}`}</td><td>${pods}</td>
            <td>${inWords(free)}</td>
          </tr>`)}
      </tbody>
    </table></div>`;
}

function Conditions({ conditions }) {
  return conditions.length > 0 && html`
    <div class="scroll" tabindex="0" role="region" aria-label="Conditions"><table class="plain">
      <caption>Conditions</caption>
      <thead>
        <tr>
          <th scope="col">Condition</th><th scope="col">Status</th><th scope="col">Why</th><th scope="col">For</th>
        </tr>
      </thead>
      <tbody>
        ${conditions.map(({ type, status, reason, message, since }) => html`
          <tr key=${type}>
            <th scope="row">${type}</th><td>${status}</td><td>${message || reason}</td><td><${Ago} at=${since} /></td>
          </tr>`)}
      </tbody>
    </table></div>`;
}
