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
  /** The last key that was read: up to there all that fits is shown. */
  #last = '';
  #kept = new Set();
  #uncounted = false;
  #reading = null;
  #meanwhile = [];

  /**
   * @param {string} path in the API
   * @param {(item: T) => string} key by which the API orders
   * @param {(item: T, query: object) => boolean} matches whether the API would list it
   * @param {() => void} miscounted is called, perhaps often, when recount is to be called
   */
  constructor(path, key, matches, miscounted = () => {}) {
    super();
    Object.assign(this, { path, key, matches, miscounted });
  }

  /** Whether more than is shown is being read. */
  get coming() {
    return this.loading && this.#wanted > this.items.length;
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
    this.#uncounted = false;
    Object.assign(this, { items: [], total: 0, more: false, loading: false, problem: null });
    this.changed();
  }

  /** Takes in a new or changed item, if it belongs to what is shown. One that the API would not list any more goes. */
  put(item) {
    this.#late(() => this.put(item));
    const key = this.key(item);
    const stays = this.matches(item, this.query) || (this.#kept.has(key) && this.get(key));
    this.#set(key, stays ? item : null);
  }

  /** @param {string} key of what is gone */
  drop(key) {
    this.#late(() => this.drop(key));
    this.#set(key, null);
  }

  /** Lets an item that is shown stay, even if the API would not list it any more, until the list is read anew. */
  keep(key) {
    this.#kept.add(key);
  }

  /** Asks how many there are, if events left that open, and reads on if rows have gone from a page that has more. */
  async recount(client) {
    if (!this.#uncounted || this.loading) {
      return;
    }
    this.#uncounted = false;
    const { signal } = this.#reading;
    try {
      const { total } = await client.get(this.path, { ...this.query, limit: 1 }, signal);
      if (signal.aborted) {
        return;
      }
      this.total = total;
      this.changed();
      if (total <= this.items.length || this.items.length < page) {
        this.#wanted = Math.max(page, this.items.length);
        await this.#read(client, true);
      }
    } catch {
      this.#uncounted ||= !signal.aborted; // It is a number only: the next call tries again.
    }
  }

  /** @param {string} key @returns {T | undefined} */
  get(key) {
    const item = this.items[this.#find(key)];
    return item && this.key(item) === key ? item : undefined;
  }

  /** Shows the item, or nothing, in the place of the key. */
  #set(key, item) {
    const was = this.get(key);
    if (!was && this.more && key > this.#last) {
      // It is on a page that is not shown. Whether it was counted there is not known.
      this.#lostCount();
    } else if (was || item) {
      this.items.splice(this.#find(key), was ? 1 : 0, ...(item ? [item] : []));
      if (!was || !item) {
        this.total += item ? 1 : -1;
        this.#lostCount(); // The API may have counted it before the event came.
      }
      this.changed();
    }
  }

  /** As long as there are more, how many is known from the API only. */
  #lostCount() {
    if (this.more) {
      this.#uncounted = true;
      this.miscounted();
    }
  }

  /** Reads what is wanted, after what is shown or instead of it. Overtakes another reading. */
  async #read(client, further) {
    this.#reading?.abort();
    this.#reading = new AbortController();
    this.#meanwhile = [];
    this.#uncounted = false;
    if (!further) {
      this.#kept.clear();
    }
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

  /** Shows what was read, and on top of it what events changed while it was read. */
  #take(items, { total, continue: next }) {
    const late = this.#meanwhile;
    // Of the first pages some may have gone since the total was read; without more pages it is what there is.
    Object.assign(this, { items, total: next ? total : items.length, more: !!next, loading: false, problem: null });
    this.#next = next ?? '';
    this.#last = items.length ? this.key(items.at(-1)) : '';
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
