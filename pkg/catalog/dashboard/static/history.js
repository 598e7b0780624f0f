import { Observable } from './observable.js';

const fresh = 60_000;
const atOnce = 4;

/** The histories of the providers on the screen, and of no others: read when they come into view, and then rarely. */
export class Histories extends Observable {
  #known = new Map();
  #inView = new Set();
  #queue = new Set();
  #reading = 0;
  #ids = new WeakMap();
  #observer = new IntersectionObserver((entries) => this.#moved(entries), { rootMargin: '100px' });

  /** @param {(id: string) => Promise<object>} read */
  constructor(read) {
    super();
    this.read = read;
    setInterval(() => this.#inView.forEach((id) => this.#want(id)), fresh / 2);
  }

  /** Watches whether the element, which shows the provider, is on the screen. @returns {() => void} ends it */
  show(element, id) {
    this.#ids.set(element, id);
    this.#observer.observe(element);
    return () => {
      this.#observer.unobserve(element);
      this.#inView.delete(id);
    };
  }

  /** @param {string} id @returns {object | undefined} an api.History */
  get(id) {
    return this.#known.get(id)?.history;
  }

  /** Forgets how old they are, as after a time without news. */
  stale() {
    this.#known.forEach((known) => { known.at = 0; });
    this.#inView.forEach((id) => this.#want(id));
  }

  #moved(entries) {
    for (const { target, isIntersecting } of entries) {
      const id = this.#ids.get(target);
      if (isIntersecting) {
        this.#inView.add(id);
        this.#want(id);
      } else {
        this.#inView.delete(id);
        this.#queue.delete(id);
      }
    }
  }

  #want(id) {
    if (Date.now() - (this.#known.get(id)?.at ?? 0) > fresh) {
      this.#queue.add(id);
      this.#work();
    }
  }

  async #work() {
    if (this.#reading >= atOnce) {
      return;
    }
    this.#reading++;
    for (const id of this.#queue) {
      this.#queue.delete(id);
      this.#known.set(id, { history: this.get(id), at: Date.now() });
      try {
        this.#known.set(id, { history: await this.read(id), at: Date.now() });
        this.changed();
      } catch { /* It is a picture only: the next turn tries again, and the stream shows what is wrong. */ }
    }
    this.#reading--;
  }
}
