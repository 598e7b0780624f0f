// The picture of where pods come from and where they go: consumers, the broker, providers.
import { html, useLayoutEffect, useRef, useState } from './ui.js';
import { useWatched } from './observable.js';
import { count, counted } from './format.js';

const most = { consumer: 6, provider: 10 };
const own = 'this cluster';
const waiting = 'waiting';

/** @param {{federation: object}} props */
export function Flow({ federation }) {
  useWatched(federation);
  const { flows, me } = federation;
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!box.current) {
      return undefined;
    }
    const observer = new ResizeObserver(([{ contentRect }]) => setWidth(Math.round(contentRect.width)));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, [!flows]);
  if (!flows) {
    return null;
  }
  const sums = summed(flows);
  return html`
    <section class="panel" aria-labelledby="flow-title">
      <header class="bar">
        <h2 id="flow-title">Where pods go</h2>
        <span class="muted">${sums.total ? inWords(sums) : 'No pods are behind the broker.'}</span>
      </header>
      <div class="flow" ref=${box}>
        ${width > 0 && sums.total > 0 && html`<${Picture} sums=${sums} width=${width} node=${me?.services.node} />`}
      </div>
      ${sums.total > 0 && html`<details><summary>The same as a table</summary><${AsTable} sums=${sums} /></details>`}
    </section>`;
}

/**
 * The flows by name, the smallest of them together as "others", in the order in which they are drawn.
 * @param {{consumer: string, provider: string, pods: number}[]} flows
 */
export function summed(flows) {
  const named = flows.map(({ consumer, provider, pods }) =>
    ({ consumer: consumer || own, provider: provider || waiting, pods }));
  const [names, distinct] = [{}, {}];
  for (const side of ['consumer', 'provider']) {
    const all = totals(named, side);
    const kept = [...all.keys()].filter((name) => name !== waiting)
      .sort((a, b) => all.get(b) - all.get(a) || (a < b ? -1 : 1)).slice(0, most[side]);
    const rest = [...all.keys()].filter((name) => name !== waiting && !kept.includes(name));
    distinct[side] = kept.length + rest.length;
    const others = `${rest.length} others`;
    named.forEach((flow) => {
      if (rest.includes(flow[side])) {
        flow[side] = others;
      }
    });
    names[side] = [...kept.sort(), ...(rest.length ? [others] : []), ...(all.has(waiting) ? [waiting] : [])];
  }
  const together = new Map();
  for (const { consumer, provider, pods } of named) {
    const key = `${consumer} ${provider}`;
    together.set(key, { consumer, provider, pods: pods + (together.get(key)?.pods ?? 0) });
  }
  return { flows: [...together.values()], names, distinct, total: flows.reduce((sum, flow) => sum + flow.pods, 0) };
}

function totals(flows, side) {
  const sums = new Map();
  flows.forEach((flow) => sums.set(flow[side], flow.pods + (sums.get(flow[side]) ?? 0)));
  return sums;
}

/** What the picture shows, in one line: the numbers are of all of them, not of the boxes, of which one is for many. */
export function inWords({ distinct, total }) {
  const [consumers, providers] = [counted(distinct.consumer, 'consumer'), counted(distinct.provider, 'provider')];
  return `${counted(total, 'pod')} of ${consumers} on ${providers}`;
}

/** Boxes and ribbons for a width in pixels. A ribbon is as thick as it has pods; every box has room for its name. */
export function layout({ flows, names, total }, width) {
  const perPod = Math.min(14, Math.max(110, 26 * Math.max(names.consumer.length, names.provider.length)) / total);
  const thickness = (pods) => Math.max(1.5, pods * perPod);
  const margin = width < 640 ? 92 : 168;
  const sides = { consumer: margin, provider: width - margin - 8 };
  const boxes = { consumer: new Map(), provider: new Map() };
  for (const side of ['consumer', 'provider']) {
    for (const name of names[side]) {
      const its = flows.filter((flow) => flow[side] === name);
      const height = its.reduce((sum, flow) => sum + thickness(flow.pods), 0);
      const pods = its.reduce((sum, flow) => sum + flow.pods, 0);
      boxes[side].set(name, { side, name, pods, height, slot: Math.max(40, height + 12), x: sides[side], filled: 0 });
    }
  }
  const tall = (side) => [...boxes[side].values()].reduce((sum, box) => sum + box.slot, 0);
  const height = Math.max(tall('consumer'), tall('provider'), 90);
  for (const side of ['consumer', 'provider']) {
    let y = (height - tall(side)) / 2;
    for (const box of boxes[side].values()) {
      box.y = y + (box.slot - box.height) / 2;
      y += box.slot;
    }
  }
  const sum = flows.reduce((all, flow) => all + thickness(flow.pods), 0);
  const broker = { x: Math.round(width / 2) - 4, y: (height - sum) / 2, height: sum };
  return { height, boxes, broker, ribbons: ribbons({ flows, names, boxes, broker, thickness }) };
}

/** Each flow has two ribbons that meet at the broker, on each side of it in the order of the boxes there. */
function ribbons({ flows, names, boxes, broker, thickness }) {
  const drawn = [];
  for (const side of ['consumer', 'provider']) {
    const other = side === 'consumer' ? 'provider' : 'consumer';
    const ordered = [...flows].sort((a, b) => names[side].indexOf(a[side]) - names[side].indexOf(b[side]) ||
      names[other].indexOf(a[other]) - names[other].indexOf(b[other]));
    let { y } = broker;
    for (const flow of ordered) {
      const thick = thickness(flow.pods);
      const box = boxes[side].get(flow[side]);
      const [left, right] = side === 'consumer'
        ? [{ x: box.x + 8, y: box.y + box.filled }, { x: broker.x, y }]
        : [{ x: broker.x + 8, y }, { x: box.x, y: box.y + box.filled }];
      const middle = (left.x + right.x) / 2;
      const [from, to] = [left.y + thick / 2, right.y + thick / 2];
      drawn.push({
        thick, flow, colour: names.consumer.indexOf(flow.consumer), side,
        path: `M${left.x} ${from}C${middle} ${from} ${middle} ${to} ${right.x} ${to}`,
      });
      box.filled += thick;
      y += thick;
    }
  }
  return drawn;
}

function Picture({ sums, width, node }) {
  const { height, boxes, broker, ribbons: all } = layout(sums, width);
  const letters = width < 640 ? 11 : 20;
  return html`
    <svg width=${width} height=${height + 28} viewBox="0 -24 ${width} ${height + 28}" role="img"
      aria-label=${inWords(sums)}>
      ${all.map(({ path, thick, flow, colour, side }) => html`
        <path key=${`${side} ${flow.consumer} ${flow.provider}`} d=${path} stroke-width=${thick}
          class="ribbon c${colour % 7} ${flow.provider === waiting && side === 'provider' ? 'waiting' : ''}">
          <title>${flow.consumer} → ${flow.provider}: ${counted(flow.pods, 'pod')}</title>
        </path>`)}
      <rect class="box broker" x=${broker.x} y=${broker.y} width="8" height=${broker.height} rx="2" />
      <text class="name" x=${broker.x + 4} y=${width < 640 ? -10 : broker.y - 10} text-anchor="middle">
        ${node ?? 'broker'}
      </text>
      ${[...boxes.consumer.values(), ...boxes.provider.values()].map((box) => html`
        <${Box} key=${`${box.side} ${box.name}`} box=${box} letters=${letters}
          colour=${sums.names.consumer.indexOf(box.name)} />`)}
    </svg>`;
}

function Box({ box: { side, name, pods, x, y, height }, letters, colour }) {
  const left = side === 'consumer';
  const [at, anchor] = left ? [x - 10, 'end'] : [x + 18, 'start'];
  const kind = left ? `c${colour % 7}` : name === waiting ? 'waiting' : '';
  const shown = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
  return html`
    <g>
      <title>${name}: ${counted(pods, 'pod')}</title>
      <rect class="box ${kind}" x=${x} y=${y} width="8" height=${height} rx="2" />
      <text class="name" x=${at} y=${y + height / 2 - 2} text-anchor=${anchor}>${shown}</text>
      <text class="count" x=${at} y=${y + height / 2 + 13} text-anchor=${anchor}>${counted(pods, 'pod')}</text>
    </g>`;
}

function AsTable({ sums: { flows, names } }) {
  const podsOf = (consumer, provider) =>
    flows.find((flow) => flow.consumer === consumer && flow.provider === provider)?.pods ?? 0;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Pods by consumer and provider">
      <table class="plain">
        <caption>Pods by consumer and provider</caption>
        <thead>
          <tr>
            <th scope="col">From</th>
            ${names.provider.map((name) => html`<th key=${name} scope="col" class="number">${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${names.consumer.map((consumer) => html`
            <tr key=${consumer}>
              <th scope="row">${consumer}</th>
              ${names.provider.map((provider) => html`
                <td key=${provider} class="number">${count(podsOf(consumer, provider))}</td>`)}
            </tr>`)}
        </tbody>
      </table>
    </div>`;
}
