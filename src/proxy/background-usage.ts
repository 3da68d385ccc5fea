// The usage of background responses. Clients can read their output without the usage: from a stream that they leave, from a
// conversation, by a later response. So the gateway asks the upstream itself, unless a call of the client shows the usage before.
import type { Principal } from '../auth/key/principal.ts';
import { wholeBody } from '../http/pieces/body-buffer.ts';
import type { Scopes } from '../limits/scope.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { readCompletion } from '../wire/chat-chunk.ts';
import { memberOf } from '../wire/error-answer.ts';
import { NO_USAGE, type Usage } from '../wire/token-usage.ts';
import type { StoredResponses } from './objects/stored-responses.ts';
import { countEarlier, type RunningReservationOptions } from './reservation/running-reservation.ts';
import { type ConfigSnapshot, whileHeld } from './routes/config-snapshot.ts';
import type { Target } from './routes/route-table.ts';
import { askUpstream, isGone, UsageFollower } from './usage-follower.ts';

const PAUSES = { first: 2_000, longest: 10 * 60_000 };
const MAX_AGE_MS = 25 * 3_600_000;
/** Of one question. */
const READ_MS = 30_000;

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
  /** The most output tokens that one stream has shown. */
  seen: number;
}

/** `over` without usage: it was deleted, cancelled or failed. */
type Reading = { readonly kind: 'running' | 'over' } | { readonly kind: 'used'; readonly usage: Usage };

interface BackgroundUsageOptions {
  readonly stored: Pick<StoredResponses, 'settle'>;
  readonly metering: RunningReservationOptions;
  readonly snapshot: () => ConfigSnapshot;
  readonly metrics: Pick<Metrics, 'followedUsage'>;
}

export class BackgroundUsage {
  readonly #options: BackgroundUsageOptions;
  readonly #follower: UsageFollower<Watched>;

  constructor(options: BackgroundUsageOptions) {
    this.#options = options;
    this.#follower = new UsageFollower<Watched>({
      kind: 'response',
      pauses: () => PAUSES,
      atOnce: 8,
      maxAge: MAX_AGE_MS,
      ask: async (watched) => {
        const reading = await this.#read(watched);
        if (reading.kind === 'running') return false;
        await this.#count(watched, reading, watched.seen);
        return true;
      },
      onGivenUp: (watched) => this.#count(watched, { kind: 'over' }, watched.seen),
      metrics: options.metrics,
    });
  }

  /** A background response was created, and its usage is not known. */
  watch(response: BackgroundResponse): void {
    this.#follower.follow({ ...response, seen: 0 });
  }

  /** A stream that ended without usage showed so many tokens of output. */
  saw(id: string, tokens: number): void {
    const watched = this.#follower.find(id);
    if (watched !== undefined) watched.seen = Math.max(watched.seen, tokens);
  }

  /** Its usage is counted. */
  settled(id: string): void {
    this.#follower.end(id);
  }

  /** Counts the usage if the upstream tells it now: after its deletion nobody can. Never rejects. */
  async settleNow(response: BackgroundResponse): Promise<void> {
    const seen = this.#follower.find(response.id)?.seen ?? 0;
    const reading = await this.#read(response);
    if (reading.kind !== 'running') await this.#count(response, reading, seen);
  }

  close(): void {
    this.#follower.clear();
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

  /** Never rejects. What cannot be read now counts as running. */
  async #read({ id, target }: BackgroundResponse): Promise<Reading> {
    let reading: Reading = { kind: 'running' };
    try {
      await whileHeld(this.#options.snapshot(), async ({ config, routes }) => {
        // After a reload, another object may have its name.
        const upstream = routes.upstream(target.upstream.name);
        if (upstream === undefined) return;
        const limit = config.max_answer.json;
        reading = await askUpstream(upstream, `responses/${id}`, READ_MS, async (status, pieces) => {
          if (isGone(status)) return { kind: 'over' };
          const body = status === 200 ? await wholeBody(pieces, limit) : undefined;
          return body === undefined ? { kind: 'running' } : readingOf(body);
        });
      });
    } catch {
      // No token, or no answer: the next question may have one.
    }
    return reading;
  }
}

/** Usage without the prompt that was counted when the response was created. */
export function withoutCharged(usage: Usage, charged: number): Usage {
  return { ...usage, prompt: Math.max(0, usage.prompt - charged) };
}

function readingOf(body: Buffer): Reading {
  const { valid, usage } = readCompletion(body);
  if (!valid) return { kind: 'running' };
  if (usage !== null && usage.total > 0) return { kind: 'used', usage };
  const status = memberOf(JSON.parse(body.toString()), 'status');
  return { kind: status === 'queued' || status === 'in_progress' ? 'running' : 'over' };
}
