import { Observable } from './observable.js';

const page = 100;
const largest = 500; // What the API gives at once.

/**
 * A list of the API as far as it is shown, in the API's order, kept up to date by events.
 * @template T
 */
export class List extends Observable {
  /** @type {T[]} */
  items = [];
  total = 0;
  /** Whether there are more than the items. */
  more = false;
  loading = true;
  /** @type {import('./api.js').Problem | null} why the list could not be read */
  problem = null;
  query = {};
  #wanted = page;
  #next = '';
  #reading = null;
  #meanwhile = [];

  /**
   * @param {string} path in the API
   * @param {(item: T) => string} key by which the API orders
   * @param {(item: T, query: object) => boolean} matches whether the API would list it
   */
  constructor(path, key, matches) {
    super();
    Object.assign(this, { path, key, matches });
  }

  /** Reads from the beginning what the query asks for. */
  find(client, query) {
    this.query = query;
    this.#wanted = page;
    return this.#read(client, false);
  }

  /** Reads again as much as is shown, or was asked for and is still under way. */
  again(client) {
    this.#wanted = Math.max(page, this.items.length, this.loading ? this.#wanted : 0);
    return this.#read(client, false);
  }

  /** Reads one page more; a reading that is under way goes on to there. */
  async next(client) {
    const wanted = this.items.length + page;
    if (!this.more || (this.loading && this.#wanted >= wanted)) {
      return;
    }
    this.#wanted = wanted;
    if (!this.loading) {
      await this.#read(client, true);
    }
  }

  /** Forgets everything, as for a caller who may not see it. */
  clear() {
    this.#reading?.abort();
    this.#wanted = page;
    Object.assign(this, { items: [], total: 0, more: false, loading: false, problem: null });
    this.changed();
  }

  /** Takes in a new or changed item, if it belongs to what is shown. One that is shown stays until the next reading. */
  put(item) {
    this.#late(() => this.put(item));
    const key = this.key(item);
    const at = this.#find(key);
    if (at < this.items.length && this.key(this.items[at]) === key) {
      this.items[at] = item;
    } else if (this.matches(item, this.query) && (at < this.items.length || !this.more)) {
      this.items.splice(at, 0, item);
      this.total++;
    } else {
      return;
    }
    this.changed();
  }

  /** @param {string} key of what is gone */
  drop(key) {
    this.#late(() => this.drop(key));
    const at = this.#find(key);
    if (at < this.items.length && this.key(this.items[at]) === key) {
      this.items.splice(at, 1);
      this.total--;
      this.changed();
    }
  }

  /** @param {string} key @returns {T | undefined} */
  get(key) {
    const item = this.items[this.#find(key)];
    return item && this.key(item) === key ? item : undefined;
  }

  /** Reads what is wanted, after what is shown or instead of it. Overtakes another reading. */
  async #read(client, further) {
    this.#reading?.abort();
    this.#reading = new AbortController();
    this.#meanwhile = [];
    this.loading = true;
    this.changed();
    const { signal } = this.#reading;
    const shown = () => (further ? this.items : []);
    const read = [];
    let after = further ? this.#next : undefined;
    try {
      for (;;) {
        const missing = this.#wanted - shown().length - read.length;
        const limit = Math.max(1, Math.min(largest, missing));
        const last = await client.get(this.path, { ...this.query, limit, continue: after }, signal);
        if (signal.aborted) {
          return;
        }
        read.push(...(last.items ?? []));
        after = last.continue;
        if (!after || shown().length + read.length >= this.#wanted) {
          this.#take([...shown(), ...read], last);
          return;
        }
      }
    } catch (problem) {
      if (!signal.aborted) {
        Object.assign(this, { problem, loading: false });
        this.changed();
      }
    }
  }

  /** Shows what was read, and on top of it what events told while it was read. */
  #take(items, { total, continue: next }) {
    const late = this.#meanwhile;
    Object.assign(this, { items, total, more: !!next, loading: false, problem: null });
    this.#next = next ?? '';
    late.forEach((change) => change());
    this.#meanwhile = [];
    this.changed();
  }

  /** Keeps what happens during a reading, the answer to which may be older. */
  #late(change) {
    if (this.loading) {
      this.#meanwhile.push(change);
    }
  }

  /** Where the key is, or would be. */
  #find(key) {
    let [low, high] = [0, this.items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      [low, high] = this.key(this.items[middle]) < key ? [middle + 1, high] : [low, middle];
    }
    return low;
  }
}
