// Small pictures of numbers. Each has its numbers as text beside it, or as its label.
import { html } from './ui.js';
import { amounts, duration, percent, quantity, resourceName } from './format.js';

const usual = ['cpu', 'memory', 'pods'];

/** How full a provider is: CPU, memory and pods, then whatever else it granted. @param {{resources: object}} props */
export function Capacity({ resources: { granted = {}, assigned = {} } }) {
  const others = Object.keys(granted).filter((name) => !usual.includes(name)).sort();
  const shown = [...usual.filter((name) => name in granted), ...others];
  return shown.length === 0
    ? html`<span class="muted">Nothing granted</span>`
    : html`
      <ul class="capacity">
        ${shown.map((name) => html`
          <${Bar} key=${name} name=${name} used=${quantity(assigned[name])} of=${quantity(granted[name])} />`)}
      </ul>`;
}

function Bar({ name, used, of }) {
  const share = of > 0 ? Math.min(1, used / of) : 0;
  const kind = share >= 0.9 ? 'full' : share >= 0.7 ? 'high' : '';
  const [much, all] = amounts(name, used, of);
  return html`
    <li class="bar" title="${resourceName(name)}: ${much} of ${all} assigned">
      <span class="what">${resourceName(name)}</span>
      <span class="much"><b>${much}</b><span class="muted"> / ${all}</span></span>
      <svg aria-hidden="true" class=${kind}>
        <rect class="track" width="100%" height="100%" rx="2" />
        <rect class="fill" width="${share * 100}%" height="100%" rx="2" />
      </svg>
    </li>`;
}

const hour = 3_600_000;
const windows = [
  { name: '1 h', span: hour, kpi: 'uptime1h' }, { name: '24 h', span: 24 * hour, kpi: 'uptime24h' },
  { name: '7 d', span: 7 * 24 * hour, kpi: 'uptime7d' }, { name: '30 d', span: 30 * 24 * hour, kpi: 'uptime30d' },
];
const slots = 30;

/** The shortest of the broker's windows that has all that was watched. */
export function windowOf(history, now) {
  const watched = now - new Date(history?.watchedSince ?? history?.since ?? now);
  return windows.find(({ span }) => watched <= span) ?? windows.at(-1);
}

/**
 * What became of each slot of a window: the share of the time watched in it that the provider was up, or "unseen".
 * @returns {(number | "unseen")[]} oldest first
 */
export function uptimeSlots(history, span, now) {
  const since = new Date(history.watchedSince ?? history.since).getTime();
  const gaps = (history.gaps ?? []).map(({ from, to, kind }) => ({ from: Date.parse(from), to: Date.parse(to), kind }));
  return Array.from({ length: slots }, (_, i) => {
    const from = Math.max(since, now - span + (i * span) / slots);
    const to = now - span + ((i + 1) * span) / slots;
    const within = (kind) => gaps.filter((gap) => gap.kind === kind)
      .reduce((sum, gap) => sum + Math.max(0, Math.min(gap.to, to) - Math.max(gap.from, from)), 0);
    const watched = to - from - within('Unobserved');
    return watched <= 0 ? 'unseen' : 1 - Math.min(1, within('Down') / watched);
  });
}

/** Uptime as the broker counts it, and when it was down. @param {{kpis: object, history?: object}} props */
export function Uptime({ kpis, history }) {
  const now = Date.now();
  const { name, span, kpi } = windowOf(history, now);
  const share = kpis[kpi] ?? kpis.uptime1h;
  const shares = history ? uptimeSlots(history, span, now) : [];
  const down = shares.filter((up) => up !== 'unseen' && up < 1).length;
  const label = `Up ${percent(share)} of the last ${name}` +
    (down ? `; it was down in ${down} of ${slots} parts of it` : '');
  return html`
    <div class="spark">
      <span class="value">${percent(share)} <span class="muted">${name}</span></span>
      <svg role="img" aria-label=${label} viewBox="0 0 ${slots * 4} 20" preserveAspectRatio="none">
        <title>${label}</title>
        ${shares.map((up, i) => html`<${Slot} key=${i} up=${up} x=${i * 4} />`)}
      </svg>
    </div>`;
}

/** Down is low as well as red; time without probes is a line. */
function Slot({ up, x }) {
  if (up === 'unseen') {
    return html`<rect class="unseen" x=${x} y="18" width="3" height="2" />`;
  }
  const height = up === 1 ? 20 : 4 + up * 10;
  return html`<rect class=${up === 1 ? 'up' : 'down'} x=${x} y=${20 - height} width="3" height=${height} />`;
}

/** How fast the API server answers, and how that went. @param {{kpis: object, history?: object}} props */
export function Latency({ kpis: { latencyMilliseconds: median }, history }) {
  const samples = history?.samples ?? [];
  const known = samples.map((sample) => sample.latencyMilliseconds).filter((ms) => ms !== undefined);
  const highest = Math.max(...known, 1);
  const span = samples.length > 1 ? duration(new Date(samples.at(-1).at) - new Date(samples[0].at)) : '';
  const label = known.length > 1
    ? `Latency between ${Math.min(...known)} and ${Math.max(...known)} ms in the last ${span}` : 'Latency is not known';
  return html`
    <div class="spark">
      <span class="value">${median ?? '–'}${median !== undefined && html` <span class="muted">ms</span>`}</span>
      <svg role="img" aria-label=${label} viewBox="0 0 100 20" preserveAspectRatio="none">
        <title>${label}</title>
        ${known.length > 1 && html`<path class="line" d=${line(samples, highest)} />`}
      </svg>
    </div>`;
}

/** The path of the samples' latency, broken where it is not known. */
function line(samples, highest) {
  let pen = 'M';
  return samples.map(({ latencyMilliseconds: ms }, i) => {
    if (ms === undefined) {
      pen = 'M';
      return '';
    }
    const point = `${pen}${((i / (samples.length - 1)) * 100).toFixed(1)} ${(18.5 - (ms / highest) * 16).toFixed(1)}`;
    pen = 'L';
    return point;
  }).join('');
}
