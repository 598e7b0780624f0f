import { Client, Problem } from './api.js';
import { Histories } from './history.js';
import { List } from './list.js';
import { Observable } from './observable.js';
import { Stream } from './stream.js';

// What events do not tell is read so long after one (more may come together), however many they are so often at most, and
// without any so often at least: as the broker counts the pods of policies.
const soon = 2_000;
const atMostEvery = 5_000;
const atLeastEvery = 30_000;

/** What the page knows of the federation, and what the person may do with it. */
export class Federation extends Observable {
  /** @type {object | null} the api.Me of the caller; null until it is known */
  me = null;
  /** @type {{consumer: string, provider: string, pods: number}[] | null} null if they may not be seen */
  flows = null;
  /** @type {Map<string, Promise>} providers whose switch is being turned; what is turned again meanwhile waits */
  turning = new Map();
  /** @type {{text: string, bad: boolean, id: number} | null} what the last action came to */
  notice = null;
  /** The version of the catalog that this page is of, and whether there is another by now. */
  version = '';
  outdated = false;
  /** @type {Set<string>} */
  regions = new Set();
  /** @type {Stream} */
  stream;
  #untold = false;
  #reading = null;
  #readAt = -Infinity;

  constructor() {
    super();
    this.client = new Client(readSession());
    const miscounted = () => this.#readSoon();
    this.providers = new List('providers', (p) => p.id, matchesProvider, miscounted);
    this.placements = new List('placements', (p) => placementKey(p.namespace, p.pod), matchesPlacement, miscounted);
    this.policies = new List('policies', (p) => p.name, () => true);
    this.histories = new Histories((id) => this.client.get(`${pathOf(id)}/history`));
  }

  async start() {
    this.#follow();
    setInterval(() => document.hidden || this.#readSoon(), atLeastEvery);
    await this.#readAll(this.client);
  }

  /** Asks as another caller from now on. Throws a Problem, and changes nothing, if the catalog does not want that. */
  async become(caller) {
    const client = new Client(caller);
    const me = await client.get('me');
    if (client.token && !me.user) {
      throw new Problem(401, 'Sign in first', 'The catalog does not know this token.');
    }
    this.#change(client, caller);
    this.me = me;
    await this.#readAll(client);
  }

  /** Forgets the token and the consumer. */
  signOut() {
    this.#change(new Client(), {});
    return this.#readAll(this.client);
  }

  /** Selects or deselects a provider for the consumer, or enables or disables it for all consumers. */
  turn(provider) {
    const [field, whose] = this.me.can.select ? ['selected', `for ${this.me.consumer}`] : ['enabled', 'for all consumers'];
    const { client } = this;
    const { id, [field]: was } = provider;
    // Under the filter "Enabled" the row would go with the switch that is being turned, and might be wanted back.
    this.providers.keep(id);
    const before = this.turning.get(id) ?? Promise.resolve();
    const turn = before.then(() => this.#write(client, id, field, !was, whose)).finally(() => {
      if (this.turning.get(id) === turn) {
        this.turning.delete(id);
        this.changed();
      }
    });
    this.turning.set(id, turn);
    this.changed();
  }

  async #write(client, id, field, on, whose) {
    try {
      const query = { consumer: field === 'selected' ? client.consumer : undefined };
      const now = await client.put(`${pathOf(id)}/${field}`, query, { [field]: on });
      this.providers.put({ ...now, [field]: on });
      this.#readSoon(); // A selection is a policy.
      this.say(`${id} is ${on ? 'on' : 'off'} ${whose}. ${on ? '' : 'Pods that are there stay.'}`);
    } catch (problem) {
      this.say(`${id} was not turned ${on ? 'on' : 'off'}. ${problem.title ?? ''}: ${problem.message}`, true);
    }
  }

  /** Why the pod is where it is. @returns {Promise<object>} an explain.Explanation */
  explain(namespace, pod, signal) {
    return this.client.get('explain', { namespace, pod }, signal);
  }

  /** Shows the result of an action. */
  say(text, bad = false) {
    this.notice = { text, bad, id: (this.notice?.id ?? 0) + 1 };
    this.changed();
  }

  silence() {
    this.notice = null;
    this.changed();
  }

  #change(client, caller) {
    writeSession(caller);
    this.client = client;
    this.me = null;
    this.flows = null;
    this.notice = null;
    for (const list of [this.providers, this.placements, this.policies]) {
      list.clear();
    }
    this.#follow();
    this.changed();
  }

  /** Reads who asks, and all that is shown; answers that are still good cost a 304. */
  async #readAll(client) {
    let me;
    try {
      me = await client.get('me');
    } catch (problem) {
      this.#failed(client, problem);
    }
    if (client !== this.client) {
      return;
    }
    if (me) {
      this.me = me;
      this.version ||= me.services.version;
      this.changed();
    }
    await Promise.all([
      this.providers.again(client).then(() => this.#learnRegions()),
      this.me?.can.placements ? this.placements.again(client) : this.placements.clear(),
      this.#readPolicies(client),
      this.#readFlows(client),
    ]);
    this.histories.stale();
  }

  /** There is something that events do not tell: policies, or how many there are. It is read, but not for each event. */
  #readSoon() {
    this.#untold = true;
    this.#reading ||= this.#readUntold();
  }

  async #readUntold() {
    while (this.#untold) {
      const wait = Math.max(soon, this.#readAt + atMostEvery - performance.now());
      await new Promise((resolve) => setTimeout(resolve, wait));
      this.#untold = false;
      this.#readAt = performance.now();
      const { client, providers, placements } = this;
      await Promise.all([
        this.#readFlows(client), this.#readPolicies(client), providers.recount(client), placements.recount(client),
      ]);
    }
    this.#reading = null;
  }

  #readPolicies(client) {
    return this.me?.can.policies ? this.policies.again(client) : this.policies.clear();
  }

  async #readFlows(client) {
    const flows = this.me?.can.placements ? (await client.get('flows').catch(() => null))?.items ?? this.flows : null;
    if (client === this.client) {
      this.flows = flows;
      this.changed();
    }
  }

  /** Without a caller nothing can be asked; what else goes wrong, the lists and the stream say themselves. */
  #failed(client, problem) {
    if (client !== this.client || ![401, 403].includes(problem.status)) {
      return false;
    }
    if (client.token || client.consumer) {
      this.signOut();
      this.say('You are signed out: the catalog does not accept your token for that any more.', true);
    }
    return true;
  }

  #follow() {
    this.stream?.stop();
    const { client } = this;
    this.stream = new Stream(
      (signal) => client.open('events', {}, { signal }),
      (event, data) => client === this.client && this.#heard(event, data),
      (problem) => this.#failed(client, problem),
    );
    this.stream.run();
  }

  #heard(event, data) {
    switch (event) {
      case 'sync':
        this.outdated = !!this.version && data.version !== this.version;
        this.#readAll(this.client);
        break;
      case 'provider':
        this.providers.put(data);
        this.#learnRegions([data]);
        break;
      case 'provider-gone':
        this.providers.drop(data.id);
        break;
      case 'placement':
        this.placements.put(data);
        this.#readSoon();
        break;
      case 'placement-gone':
        this.placements.drop(placementKey(data.namespace, data.pod));
        this.#readSoon();
        break;
    }
  }

  #learnRegions(providers = this.providers.items) {
    const known = this.regions.size;
    providers.forEach(({ region }) => region && this.regions.add(region));
    if (this.regions.size !== known) {
      this.changed();
    }
  }
}

const pathOf = (provider) => `providers/${encodeURIComponent(provider)}`;

// A zero sorts before every character of names, so that the order is by namespace and then by pod.
const placementKey = (namespace, pod) => `${namespace}\0${pod}`;

const contains = (texts, part) => !part || texts.some((text) => text?.toLowerCase().includes(part.toLowerCase()));
const is = (value, wanted) => !wanted || String(value) === wanted;

/** As GET /providers does. */
function matchesProvider(provider, { q, ready, enabled, region }) {
  return contains([provider.id, provider.region, ...Object.values(provider.attributes ?? {})], q) &&
    is(provider.ready, ready) && is(provider.enabled, enabled) && is(provider.region, region);
}

/** As GET /placements does. */
function matchesPlacement(placement, { q, namespace, provider, consumer, phase, waiting }) {
  const { namespace: of, pod, provider: at, consumer: from } = placement;
  const waits = !at && !['Succeeded', 'Failed'].includes(placement.phase);
  return contains([`${of}/${pod}`, at, from], q) && is(of, namespace) && is(at, provider) && is(from, consumer) &&
    is(placement.phase, phase) && (!waiting || waits);
}

const sessionKey = 'catalog';

/** The token and the consumer, kept as long as this tab is open. */
function readSession() {
  try {
    return JSON.parse(sessionStorage.getItem(sessionKey)) ?? {};
  } catch {
    return {};
  }
}

function writeSession(caller) {
  try {
    sessionStorage.setItem(sessionKey, JSON.stringify(caller));
  } catch { /* Storage is switched off: it lasts until the page is loaded again. */ }
}
