// The catalog's API.

const mostTries = 4;
const longestWait = 5_000;

/** What went wrong, as the catalog (RFC 9457) or the browser reports it. */
export class Problem extends Error {
  /**
   * @param {number} status 0 if there was no answer
   * @param {string} title
   * @param {string} [detail]
   * @param {number} [wait] ms, before it is worth trying again
   */
  constructor(status, title, detail, wait) {
    super(detail || title);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.wait = wait;
  }
}

/** Calls of one caller: on behalf of the consumer if one is named, with the token if there is one. */
export class Client {
  /** How long an answer may take, in ms. */
  patience = 30_000;

  /** @param {{token?: string, consumer?: string}} caller */
  constructor({ token, consumer } = {}) {
    this.token = token;
    this.consumer = consumer;
  }

  /**
   * Reads; waits if the catalog asks for that because it is busy or has just started.
   * @param {string} path below api/v1/
   * @param {Record<string, unknown>} [query] what is empty is left out; "consumer" takes the place of the client's
   */
  async get(path, query, signal) {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#ask(path, query, { signal });
      } catch (err) {
        if (![429, 503].includes(err.status) || !err.wait || err.wait > longestWait || tries === mostTries) {
          throw err;
        }
        await new Promise((resolve) => setTimeout(resolve, err.wait));
      }
    }
  }

  put(path, query, body) {
    const headers = { 'Content-Type': 'application/json' };
    return this.#ask(path, query, { method: 'PUT', headers, body: JSON.stringify(body) });
  }

  async #ask(path, query, { signal, ...init }) {
    const late = AbortSignal.timeout(this.patience);
    try {
      return await (await this.open(path, query, { ...init, signal: signal ? AbortSignal.any([signal, late]) : late })).json();
    } catch (err) {
      throw err.name === 'TimeoutError' ? new Problem(0, 'The catalog takes too long', 'It did not answer in time.') : err;
    }
  }

  /** The answer as it comes in; throws a Problem for any but a good one. @returns {Promise<Response>} */
  async open(path, query, { headers = {}, ...init } = {}) {
    const url = new URL(`api/v1/${path}`, document.baseURI);
    for (const [name, value] of Object.entries({ consumer: this.consumer, ...query })) {
      if (value !== undefined && value !== '' && value !== null) {
        url.searchParams.set(name, value);
      }
    }
    if (this.token) {
      headers = { ...headers, Authorization: `Bearer ${this.token}` };
    }
    let response;
    try {
      response = await fetch(url, { ...init, headers, cache: init.method ? 'no-store' : 'no-cache' });
    } catch (err) {
      if (init.signal?.aborted) {
        throw err;
      }
      throw new Problem(0, 'The catalog cannot be reached', 'It does not answer, or the network is down.');
    }
    if (!response.ok) {
      throw await problemOf(response, !!this.token);
    }
    return response;
  }
}

const words = {
  401: 'Sign in first', 403: 'You may not do that', 404: 'There is no such thing', 429: 'Too many requests',
  503: 'The catalog is not ready yet',
};

async function problemOf(response, known) {
  const wait = Number(response.headers.get('Retry-After')) * 1000 || undefined;
  let said = {};
  if (/[/+]json/.test(response.headers.get('Content-Type') ?? '')) {
    said = await response.json().catch(() => ({}));
  }
  const refused = response.status === 401 && known && 'The token is not accepted';
  const title = refused || words[response.status] || said.title || `The catalog answered ${response.status}`;
  const faults = (said.errors ?? []).map(({ location, message }) => `${location}: ${message}`);
  return new Problem(response.status, title, [said.detail, ...faults].filter(Boolean).join('; '), wait);
}
