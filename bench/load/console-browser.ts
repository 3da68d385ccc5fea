// A browser with the page *Now* open: it asks what the page's scripts ask, as often as they do. test/console/browser-load.test.ts holds it
// against Chromium.
import http from 'node:http';

/** Between two requests for a part of the page that follows by itself: see src/console/pages/fragments.js. */
const FOLLOWS_MS = 15_000;
/** What the stream tells a browser to wait before it asks again: see src/console/pages/now-page.ts. */
const RETRY_MS = 1000;
const NOW = '/console';

/** Signs in. @returns the cookie of the session */
export async function signIn(adminUrl: string, token: string): Promise<string> {
  const response = await fetch(new URL('/console/sign-in', adminUrl), {
    method: 'POST',
    body: new URLSearchParams({ token }),
    redirect: 'manual',
  });
  const cookie = response.headers.getSetCookie()[0]?.split(';')[0];
  if (cookie === undefined) throw new Error(`the console did not let the bench in: ${response.status}`);
  return cookie;
}

export class ConsoleBrowser {
  /** Paths that were asked for. */
  readonly asked: string[] = [];
  events = 0;
  bytes = 0;
  readonly #url: string;
  readonly #cookie: string;
  readonly #followsMs: number;
  // As browsers do: a stream has a connection to itself, and the others share kept ones.
  readonly #agent = new http.Agent({ keepAlive: true });
  readonly #timers = new Set<NodeJS.Timeout>();
  #live: http.ClientRequest | undefined;
  #isClosed = false;

  /** @param cookie of a session */
  constructor(adminUrl: string, cookie: string, followsMs = FOLLOWS_MS) {
    this.#followsMs = followsMs;
    this.#url = adminUrl;
    this.#cookie = cookie;
  }

  /** Loads the page. Resolves with the first event. */
  async open(): Promise<void> {
    const page = await this.#get(NOW);
    const urls = [...page.matchAll(/ data-follows="([^"]+)"/g)].map(([, url = '']) => url);
    for (const url of urls)
      this.#timers.add(
        setInterval(() => {
          this.#get(url).catch((error: unknown) => this.#fail(error));
        }, this.#followsMs),
      );
    await new Promise<void>((resolve, reject) => this.#listen(resolve, reject));
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#timers) clearInterval(timer);
    this.#live?.destroy();
    this.#agent.destroy();
  }

  #fail(error: unknown): void {
    if (!this.#isClosed) throw error;
  }

  #listen(onEvent: () => void, onError: (error: Error) => void): void {
    const path = '/console/live';
    this.asked.push(path);
    const headers = { cookie: this.#cookie, accept: 'text/event-stream' };
    this.#live = http.get(new URL(path, this.#url), { headers, agent: false }, (response) => {
      if (response.statusCode !== 200) onError(new Error(`${path} was answered with ${response.statusCode}`));
      response.on('data', (bytes: Buffer) => {
        this.bytes += bytes.length;
        if (!bytes.includes('data: ')) return;
        this.events += 1;
        onEvent();
      });
      response.once('end', () => {
        if (!this.#isClosed) this.#timers.add(setTimeout(() => this.#listen(onEvent, onError), RETRY_MS));
      });
      response.on('error', (error) => this.#isClosed || onError(error));
    });
    this.#live.on('error', (error) => this.#isClosed || onError(error));
  }

  #get(path: string): Promise<string> {
    this.asked.push(path);
    return new Promise((resolve, reject) => {
      const options = { headers: { cookie: this.#cookie }, agent: this.#agent };
      const sent = http.get(new URL(path, this.#url), options, async (response) => {
        let text = '';
        for await (const piece of response) text += piece;
        this.bytes += text.length;
        if (response.statusCode === 200) resolve(text);
        else reject(new Error(`${path} was answered with ${response.statusCode}`));
      });
      sent.on('error', reject);
    });
  }
}
