import { useLayoutEffect, useState } from './ui.js';

/** Something that components watch. However often it changes, they are drawn once per frame of the screen. */
export class Observable {
  #watchers = new Set();
  #frame = 0;

  /** @param {() => void} watcher @returns {() => void} ends it */
  watch(watcher) {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  changed() {
    if (this.#frame) {
      return;
    }
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
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
