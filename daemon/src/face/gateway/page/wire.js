// The gateway: JSON-RPC by POST, and streams of events that read on from their cursor whatever happens to the connection.
//
// A stream is read with `fetch` and not with `EventSource`: so a refusal has a reason, and a connection that died while
// the laptop slept shows, because the gateway's comment lines no longer come.

const STALL_MS = 40_000; // Without a byte for this long a connection counts as dead; the gateway sends a comment every 15 s
const WAIT_MS = [300, 5000]; // Between two attempts to connect, at first and at most
const PATIENCE_MS = 20_000; // How long a request is repeated while the gateway or the daemon is away; it takes effect once, by its key
const SLICE_MS = 12; // How long the page works without letting the browser draw or listen

export class Failure extends Error {
  constructor(message, { hint, code, data } = {}) {
    super(message);
    Object.assign(this, { hint, code, data });
  }
}

export const unauthorized = () => dispatchEvent(new Event('unauthorized'));

// An idempotency key. (`randomUUID` is missing where the page is served without TLS.)
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function failure(answer) {
  const error = await answer.json().then((body) => body.error, () => null);
  if (answer.status === 401) unauthorized();
  return new Failure(error?.message ?? `the gateway answers ${answer.status}`, { ...error, code: answer.status });
}

// One request that is no JSON-RPC: `/me`, `/login`, `/artifact/`.
export async function http(path, options = {}) {
  const answer = await fetch(path, { cache: 'no-store', ...options }).catch(() => {
    throw new Failure('the gateway cannot be reached', { hint: '`linger gateway start` starts it' });
  });
  if (!answer.ok) throw await failure(answer);
  return answer;
}

let lastId = 0;

export async function call(method, params = {}) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: ++lastId, method, params });
  const post = { method: 'POST', body, headers: { 'Content-Type': 'application/json' }, cache: 'no-store' };
  const until = Date.now() + PATIENCE_MS;
  for (let wait = WAIT_MS[0]; ; wait = Math.min(wait * 2, WAIT_MS[1])) {
    const answer = await fetch('/rpc', post).catch(() => null);
    if (answer?.ok) {
      const { error, result } = await answer.json();
      if (error) throw new Failure(error.message, { hint: error.data?.hint, code: error.code, data: error.data });
      return result;
    }
    const away = !answer || [502, 503, 504].includes(answer.status);
    if (!away) throw await failure(answer);
    if (Date.now() > until) throw new Failure('the daemon cannot be reached', { hint: 'the page keeps trying to reconnect' });
    await sleep(wait);
  }
}

// As `call`, for what changes something: sent again with the same key it takes effect once.
export const change = (method, params) => call(method, { ...params, key: newKey() });

// `on` has: `event(params)`, `state(word, text)` with `connecting`, `open`, `lost` or `gone`, and `reset()` when the
// cursor is refused and the stream begins again.
export class Stream {
  constructor(path, params, on) {
    Object.assign(this, { path, params, on, cursor: undefined, stopped: false, abort: null, heard: 0, life: 0 });
  }
  start(cursor) {
    this.cursor = cursor;
    this.first ??= cursor;
    this.stopped = false;
    this.watch = setInterval(() => Date.now() - this.heard > STALL_MS && this.abort?.abort(), 5000);
    this.run(++this.life);
    return this;
  }
  stop() {
    this.stopped = true;
    this.life += 1;
    clearInterval(this.watch);
    this.abort?.abort();
  }

  // Tries at once: the laptop woke up, or the network is back.
  poke() {
    if (this.wake) this.wake();
    else if (Date.now() - this.heard > STALL_MS) this.abort?.abort();
  }
  async run(life) {
    for (let wait = WAIT_MS[0]; !this.stopped && this.life === life; ) {
      this.heard = Date.now();
      this.abort = new AbortController();
      try {
        const query = new URLSearchParams(this.params);
        if (this.cursor !== undefined) query.set('after', this.cursor);
        const answer = await fetch(`${this.path}?${query}`, { signal: this.abort.signal, cache: 'no-store' });
        if (this.life !== life) return;
        if (answer.status === 409) {
          this.cursor = this.first;
          this.on.reset?.();
        } else if (!answer.ok) {
          const error = await failure(answer);
          if ([400, 401, 403, 404].includes(answer.status)) return this.on.state('gone', error.message);
          throw error;
        } else {
          this.on.state('open');
          wait = WAIT_MS[0];
          await this.read(answer.body.getReader(), life);
        }
      } catch {
        // Lost; the loop tries again from the cursor.
      }
      if (this.stopped || this.life !== life) return;
      this.on.state('lost');
      await new Promise((done) => {
        this.wake = done;
        setTimeout(done, wait);
      });
      this.wake = null;
      wait = Math.min(wait * 2, WAIT_MS[1]);
    }
  }
  async read(reader, life) {
    const decoder = new TextDecoder();
    let rest = '';
    let data = '';
    let began = performance.now();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.life !== life) return reader.cancel().catch(() => {});
      this.heard = Date.now();
      rest += decoder.decode(value, { stream: true });
      let at = 0;
      for (let end; (end = rest.indexOf('\n', at)) >= 0; at = end + 1) {
        const line = rest.slice(at, rest[end - 1] === '\r' ? end - 1 : end);
        if (line.startsWith('data:')) data += (data && '\n') + line.slice(line[5] === ' ' ? 6 : 5);
        if (line !== '' || data === '') continue;
        const params = JSON.parse(data);
        data = '';
        this.on.event(params);
        if (params.cursor !== undefined) this.cursor = params.cursor;
        if (performance.now() - began < SLICE_MS) continue;
        await (globalThis.scheduler?.yield?.() ?? sleep(0));
        if (this.life !== life) return reader.cancel().catch(() => {});
        began = performance.now();
      }
      rest = rest.slice(at);
    }
  }
}
