// The usage of background responses. Clients can read their output without the usage: from a stream that they leave, from a
// conversation, by a later response. So the gateway asks the upstream itself, unless a call of the client shows the usage before.
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { startDeadline } from '../deadline.ts';
import type { Scopes } from '../limits/scope.ts';
import { RecentMap } from '../recent-map.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { readCompletion } from '../wire/chat-chunk.ts';
import { decodeString, JsonScanner } from '../wire/json.ts';
import { NO_USAGE, type Usage } from '../wire/token-usage.ts';
import type { StoredResponses } from './objects/stored-responses.ts';
import { countEarlier, type RunningReservationOptions } from './reservation/running-reservation.ts';
import { type ConfigSnapshot, whileHeld } from './routes/config-snapshot.ts';
import type { Target } from './routes/route-table.ts';

/** Pauses between two questions: the first one, doubled each time up to the longest. After the last day, nobody asks. */
const FIRST_MS = 2_000;
const LONGEST_MS = 10 * 60_000;
const LAST_MS = 25 * 3_600_000;
/** Of one question. */
const READ_MS = 30_000;
const MAX_RESPONSES = 10_000;
const MAX_READS = 8;
const QUOTE = 0x22;

export interface BackgroundResponse {
  readonly id: string;
  readonly principal: Principal;
  readonly scopes: Scopes;
  /** Public name of its model, and its name or pattern in the configuration. */
  readonly model: string;
  readonly entry: string;
  readonly target: Pick<Target, 'upstream' | 'model' | 'price'>;
  /** Tokens of the prompt that are counted already. */
  readonly charged: number;
}

interface Watched extends BackgroundResponse {
  readonly since: number;
  delayMs: number;
  timer: NodeJS.Timeout | undefined;
  /** The most output tokens that one stream has shown. */
  seen: number;
}

/** `over` without usage: it was deleted, cancelled or failed. */
type Reading = { readonly kind: 'running' | 'over' } | { readonly kind: 'used'; readonly usage: Usage };

interface BackgroundUsageOptions {
  readonly stored: Pick<StoredResponses, 'settle'>;
  readonly metering: RunningReservationOptions;
  readonly snapshot: () => ConfigSnapshot;
  readonly metrics: Pick<Metrics, 'backgroundResponses'>;
}

export class BackgroundUsage {
  readonly #options: BackgroundUsageOptions;
  readonly #watched = new RecentMap<string, Watched>(MAX_RESPONSES, (_, { timer }) => clearTimeout(timer));
  #reads = 0;

  constructor(options: BackgroundUsageOptions) {
    this.#options = options;
  }

  /** A background response was created, and its usage is not known. */
  watch(response: BackgroundResponse): void {
    if (this.#watched.has(response.id)) return;
    const watched = { ...response, since: performance.now(), delayMs: FIRST_MS, timer: undefined, seen: 0 };
    this.#watched.set(response.id, watched);
    this.#options.metrics.backgroundResponses.set(this.#watched.size);
    this.#schedule(watched);
  }

  /** A stream that ended without usage showed so many tokens of output. */
  saw(id: string, tokens: number): void {
    const watched = this.#watched.get(id);
    if (watched !== undefined) watched.seen = Math.max(watched.seen, tokens);
  }

  /** Its usage is counted. */
  settled(id: string): void {
    clearTimeout(this.#watched.get(id)?.timer);
    this.#watched.delete(id);
    this.#options.metrics.backgroundResponses.set(this.#watched.size);
  }

  /** Counts the usage if the upstream tells it now: after its deletion nobody can. Never rejects. */
  async settleNow(response: BackgroundResponse): Promise<void> {
    const watched = this.#watched.get(response.id);
    const reading = await this.#read(response);
    if (reading.kind !== 'running') await this.#count(response, reading, watched?.seen ?? 0);
  }

  close(): void {
    for (const { timer } of this.#watched.values()) clearTimeout(timer);
    this.#watched.clear();
  }

  #schedule(watched: Watched): void {
    watched.timer = setTimeout(() => void this.#ask(watched), watched.delayMs).unref();
    watched.delayMs = Math.min(watched.delayMs * 2, LONGEST_MS);
  }

  async #ask(watched: Watched): Promise<void> {
    const isBusy = this.#reads >= MAX_READS;
    const reading: Reading = isBusy ? { kind: 'running' } : await this.#read(watched);
    if (this.#watched.get(watched.id) !== watched) return;
    const isLate = performance.now() - watched.since > LAST_MS;
    if (reading.kind === 'running' && !isLate) this.#schedule(watched);
    else await this.#count(watched, reading, watched.seen);
  }

  async #count(response: BackgroundResponse, reading: Reading, seen: number): Promise<void> {
    const { stored, metering, snapshot } = this.#options;
    const { id, principal, scopes, target, charged, model, entry } = response;
    this.settled(id);
    // Of several replicas, and calls of the client, one counts.
    if (!(await stored.settle(id))) return;
    const usage =
      reading.kind === 'used' ? withoutCharged(reading.usage, charged) : { ...NO_USAGE, completion: seen };
    if (usage.prompt + usage.completion === 0) return;
    countEarlier(metering, principal, snapshot().config.tiers, {
      tokens: usage,
      isEstimated: reading.kind !== 'used',
      endpoint: 'responses',
      model,
      entry,
      upstream: target.upstream.name,
      target: target.model,
      scopes,
      price: target.price,
      share: 1,
    });
  }

  async #read({ id, target }: BackgroundResponse): Promise<Reading> {
    let reading: Reading = { kind: 'running' };
    this.#reads += 1;
    try {
      await whileHeld(this.#options.snapshot(), async ({ config, routes }) => {
        // After a reload, another object may have its name.
        const upstream = routes.upstream(target.upstream.name);
        if (upstream === undefined) return;
        await upstream.authorize();
        reading = await readResponse(upstream, id, config.max_answer);
      });
    } catch {
      // No token: the next question may have one.
    } finally {
      this.#reads -= 1;
    }
    return reading;
  }
}

/** Usage without the prompt that was counted when the response was created. */
export function withoutCharged(usage: Usage, charged: number): Usage {
  return { ...usage, prompt: Math.max(0, usage.prompt - charged) };
}

/** Never rejects. What cannot be read now counts as running. */
function readResponse(
  upstream: Upstream,
  id: string,
  { json: limit }: DynamicConfig['max_answer'],
): Promise<Reading> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let status = 0;
    const end = (reading: Reading, isAborted = false) => {
      stop();
      if (isAborted) call.abort();
      resolve(reading);
    };
    const call = upstream.send(
      {
        endpoint: { method: 'GET', path: `responses/${id}`, query: '' },
        body: Buffer.alloc(0),
        requestId: `usage-of-${id}`,
        client: {},
        accept: 'application/json',
        fresh: true,
      },
      {
        onHead: (code) => {
          status = code;
        },
        onData: (chunk) => {
          size += chunk.length;
          if (size > limit) end({ kind: 'running' }, true);
          else chunks.push(chunk);
        },
        onEnd: () => end(status === 404 ? { kind: 'over' } : readingOf(status, Buffer.concat(chunks))),
        onError: () => end({ kind: 'running' }),
      },
    );
    const stop = startDeadline(READ_MS, () => end({ kind: 'running' }, true));
  });
}

function readingOf(code: number, body: Buffer): Reading {
  const { valid, usage } = code === 200 ? readCompletion(body) : { valid: false, usage: null };
  if (!valid) return { kind: 'running' };
  if (usage !== null && usage.total > 0) return { kind: 'used', usage };
  const status = statusIn(body);
  return { kind: status === 'queued' || status === 'in_progress' ? 'running' : 'over' };
}

/** `status` of a valid object. */
function statusIn(body: Buffer): string | undefined {
  const scanner = new JsonScanner();
  scanner.reset(body);
  let status: string | undefined;
  if (!scanner.enterObject()) return undefined;
  while (scanner.nextMember()) {
    const isStatus = scanner.keyIs('status');
    const span = scanner.skipIf(QUOTE);
    if (isStatus && span !== null) status = decodeString(body, span);
  }
  return status;
}
