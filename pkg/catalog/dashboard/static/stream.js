import { Observable } from './observable.js';
import { Problem } from './api.js';

const silence = 45_000; // The server writes a comment every 15 s: without three of them the connection is lost.
const lasting = 5_000;
const longest = 30_000;

/** Follows the events of the catalog. A stream that ends is opened again, with backoff if that fails. */
export class Stream extends Observable {
  /** "opening", "live", "refused", or "lost": then the next try is at retryAt and the last news came at heard. */
  state = 'opening';
  retryAt = 0;
  heard = Date.now();
  #since = 0;
  #abort = new AbortController();
  #wake = () => {};

  /**
   * @param {(signal: AbortSignal) => Promise<Response>} open
   * @param {(event: string, data: any) => void} onEvent
   * @param {(problem: Problem) => boolean} refused reports whether a problem ends the stream for good
   */
  constructor(open, onEvent, refused) {
    super();
    Object.assign(this, { open, onEvent, refused });
  }

  async run() {
    const { signal } = this.#abort;
    for (let failures = 0; !signal.aborted;) {
      let asked = 0;
      try {
        await this.#follow(signal);
      } catch (err) {
        if (!signal.aborted && err instanceof Problem && this.refused(err)) {
          this.#set('refused');
          return;
        }
        asked = err.wait ?? 0;
      }
      // The server ends a stream now and then, so that rights are asked anew: one that lasted is opened again at once.
      failures = this.state === 'live' && Date.now() - this.#since > lasting ? 0 : failures + 1;
      await this.#pause(Math.max(failures ? backoff(failures) : 0, asked));
    }
  }

  stop() {
    this.#abort.abort();
    this.#wake();
  }

  /** Tries at once. */
  retry() {
    this.#wake();
  }

  #set(state, retryAt = 0) {
    Object.assign(this, { state, retryAt });
    this.changed();
  }

  async #pause(wait) {
    if (!wait) {
      this.#set('opening');
      return;
    }
    this.#set('lost', Date.now() + wait);
    await new Promise((resolve) => {
      this.#wake = resolve;
      setTimeout(resolve, wait);
    });
  }

  /** Reads one stream to its end. Throws when nothing was heard for too long. */
  async #follow(signal) {
    const quiet = new AbortController();
    let alarm = setTimeout(() => quiet.abort(), silence);
    try {
      const response = await this.open(AbortSignal.any([signal, quiet.signal]));
      const parser = new Parser();
      for await (const text of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
        clearTimeout(alarm);
        alarm = setTimeout(() => quiet.abort(), silence);
        this.heard = Date.now();
        for (const { event, data } of parser.feed(text)) {
          if (this.state !== 'live') {
            this.#since = Date.now();
            this.#set('live');
          }
          this.onEvent(event, data);
        }
      }
    } finally {
      clearTimeout(alarm);
    }
  }
}

/** 1 s, 2 s, 4 s … 30 s, and up to a fifth less, so that not all pages come back at once. */
function backoff(failures) {
  return Math.min(longest, 1000 * 2 ** (failures - 1)) * (1 - Math.random() / 5);
}

/** The text of a stream, piece by piece (not every browser can iterate over a stream itself). */
async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Server-sent events out of text that is cut anywhere. Comments, ids and retry are passed over. */
export class Parser {
  #rest = '';

  /** @param {string} text @returns {{event: string, data: any}[]} */
  feed(text) {
    const blocks = (this.#rest + text).replaceAll('\r\n', '\n').split('\n\n');
    this.#rest = blocks.pop();
    return blocks.map(parseBlock).filter((parsed) => parsed !== null);
  }
}

function parseBlock(block) {
  let event = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === 'event') {
      event = value;
    } else if (field === 'data') {
      data.push(value);
    }
  }
  return data.length ? { event, data: JSON.parse(data.join('\n')) } : null;
}
