// Follows work at upstreams whose usage is known only at its end, such as background responses and batches: asks with growing pauses,
// within bounds, until it is over. What is asked and counted is that of its kind.
import type { IncomingMessage } from 'node:http';
import { startDeadline } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import { RecentMap } from '../recent-map.ts';
import { directRequest } from '../upstream/direct-request.ts';
import type { Upstream } from '../upstream/upstream.ts';

/** Work of one kind that is followed at once. */
const MAX_FOLLOWED = 10_000;

/** Whether the upstream no longer has an object. @param status of its answer */
export function isGone(status: number): boolean {
  return status === 404 || status === 410;
}

interface FollowerOptions<Work> {
  readonly kind: 'response' | 'batch';
  /** Pauses in milliseconds: the first one, which doubles up to the longest. */
  readonly pauses: () => { readonly first: number; readonly longest: number };
  /** Maximum number of concurrent questions. */
  readonly atOnce: number;
  /** Milliseconds after which work is given up. */
  readonly maxAge: number;
  /** Asks once, and counts what is over. @returns whether it is over. A rejection is a question without an answer */
  readonly ask: (work: Work) => Promise<boolean>;
  /** Nobody asks again. */
  readonly onGivenUp: (work: Work) => Promise<void>;
  readonly metrics: {
    readonly followedUsage: {
      readonly running: { set(labels: { readonly kind: string }, count: number): void };
      readonly givenUp: { inc(labels: { readonly kind: string; readonly reason: string }): void };
    };
  };
}

interface Followed<Work> {
  readonly work: Work;
  /** By the monotonic clock. */
  readonly until: number;
  pause: number;
  timer: NodeJS.Timeout | undefined;
}

export class UsageFollower<Work extends { readonly id: string }> {
  readonly #options: FollowerOptions<Work>;
  readonly #followed = new RecentMap<string, Followed<Work>>(MAX_FOLLOWED, (_, evicted) => {
    clearTimeout(evicted.timer);
    this.#countGivenUp('full');
  });
  readonly #due: Followed<Work>[] = [];
  #questions = 0;

  constructor(options: FollowerOptions<Work>) {
    this.#options = options;
    this.#updateGauge();
  }

  get isFull(): boolean {
    return this.#followed.size >= MAX_FOLLOWED;
  }

  /** Without effect on work that is followed. @param age of the work, in milliseconds */
  follow(work: Work, age = 0): void {
    if (this.#followed.has(work.id)) return;
    const { pauses, maxAge } = this.#options;
    const until = performance.now() + maxAge - age;
    const followed = { work, until, pause: pauses().first, timer: undefined };
    this.#followed.set(work.id, followed);
    this.#updateGauge();
    this.#schedule(followed);
  }

  find(id: string): Work | undefined {
    return this.#followed.get(id)?.work;
  }

  /** It is over. */
  end(id: string): void {
    clearTimeout(this.#followed.get(id)?.timer);
    this.#followed.delete(id);
    this.#updateGauge();
  }

  /** Follows nothing from now on. */
  clear(): void {
    for (const { timer } of this.#followed.values()) clearTimeout(timer);
    this.#followed.clear();
    this.#due.length = 0;
    this.#updateGauge();
  }

  #schedule(followed: Followed<Work>): void {
    followed.timer = setTimeout(() => {
      this.#due.push(followed);
      this.#askNext();
    }, followed.pause).unref();
    followed.pause = Math.min(followed.pause * 2, this.#options.pauses().longest);
  }

  #askNext(): void {
    while (this.#questions < this.#options.atOnce) {
      const next = this.#due.shift();
      if (next === undefined) return;
      this.#questions += 1;
      void this.#ask(next).then(() => {
        this.#questions -= 1;
        this.#askNext();
      });
    }
  }

  /** Never rejects. */
  async #ask(followed: Followed<Work>): Promise<void> {
    const { ask, onGivenUp } = this.#options;
    const { work, until } = followed;
    const isFollowed = () => this.#followed.get(work.id) === followed;
    if (!isFollowed()) return;
    const isOver = await ask(work).catch(() => false);
    if (!isFollowed()) return;
    if (isOver) {
      this.end(work.id);
    } else if (performance.now() < until) {
      this.#schedule(followed);
    } else {
      this.end(work.id);
      this.#countGivenUp('late');
      await onGivenUp(work).catch(() => undefined);
    }
  }

  #updateGauge(): void {
    const { metrics, kind } = this.#options;
    metrics.followedUsage.running.set({ kind }, this.#followed.size);
  }

  #countGivenUp(reason: 'full' | 'late'): void {
    const { metrics, kind } = this.#options;
    metrics.followedUsage.givenUp.inc({ kind, reason });
  }
}

/**
 * Gets an object with the upstream's credentials, outside of any request of a client.
 * @param path below the API root
 * @param ms deadline of the whole answer
 * @param read gets the status and the body; it may leave the body unread
 * @throws GatewayError; what `read` throws
 */
export async function askUpstream<Result>(
  upstream: Upstream,
  path: string,
  ms: number,
  read: (status: number, body: AsyncIterable<Buffer>) => Promise<Result>,
): Promise<Result> {
  const { credential } = upstream;
  await credential.ready();
  const { token } = credential;
  const headers = { ...upstream.headersFor({}, 'usage'), accept: 'application/json' };
  const request = directRequest(upstream, { method: 'GET', path: upstream.pathWith(path, ''), headers }, ms);
  const stop = startDeadline(ms, () => request.destroy(new GatewayError('upstream_timeout')));
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.on('response', resolve).on('error', reject).end();
    });
    const { statusCode = 0 } = response;
    // The next question has another token.
    if (statusCode === 401 && token !== undefined) await credential.replaceToken(token);
    return await read(statusCode, response);
  } finally {
    stop();
    request.destroy();
  }
}
