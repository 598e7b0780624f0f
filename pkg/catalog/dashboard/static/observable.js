import { useLayoutEffect, useState } from './ui.js';

const pause = 150;

/** Something that components watch. However often it changes, they are drawn a few times a second at most. */
export class Observable {
  #watchers = new Set();
  #due = false;
  #drawn = 0;

  /** @param {() => void} watcher @returns {() => void} ends it */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** The first change after a pause is drawn in the next frame; those that follow it wait together. */
  changed() {
    if (this.#due) {
      return;
    }
    this.#due = true;
    const wait = this.#drawn + pause - performance.now();
    if (wait > 0) {
      setTimeout(() => this.#draw(), wait);
    } else {
      this.#draw();
    }
  }

  #draw() {
    requestAnimationFrame((now) => {
      this.#due = false;
      this.#drawn = now;
      for (const watcher of this.#watchers) {
        watcher();
      }
    });
  }
}

/** Draws the component anew when one of the observables changes. @param {...Observable} observables */
export function useWatched(...observables) {
  const [, draw] = useState(0);
  useLayoutEffect(() => {
    const ends = observables.map((observable) => observable.watch(() => draw((n) => n + 1)));
    return () => ends.forEach((end) => end());
  }, observables);
}
