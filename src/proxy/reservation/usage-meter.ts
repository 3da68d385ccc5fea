// What one request has used, put together from what its attempts have seen. It counts nothing itself and writes nothing down.
import type { Usage } from '../../wire/chat-chunk.ts';
import type { AttemptUse, Unreported } from '../contracts/receiver.ts';
import { BYTES_PER_TOKEN, type Estimate } from '../request/token-estimate.ts';

export type Tokens = Pick<Usage, 'prompt' | 'completion' | 'cached' | 'reasoning'>;

interface MeterReading {
  /** Of the attempt that counts: the one that the client was answered from, or else the last. */
  readonly upstream: string;
  readonly provider: string;
  /** Requests to upstreams, of which some may not have been sent. */
  readonly attempts: number;
  readonly tokens: Tokens;
  /** No upstream said it, or not all of it. Without use there is nothing to estimate. */
  readonly isEstimated: boolean;
  /** The upstream said it, all of it: a measurement. */
  readonly isReported: boolean;
  /** What others have used before or beside it. */
  readonly extra: readonly {
    readonly upstream: string;
    readonly provider: string;
    readonly tokens: Tokens;
  }[];
}

/**
 * The least that an estimate counts of what an upstream bills for output: no token of text has less than a byte, and as many bytes
 * count as one.
 */
export const COUNTED_SHARE = 1 / BYTES_PER_TOKEN;
/** How fast models think that show nothing of it. */
const FASTEST_TOKENS_PER_SECOND = 200;
/** What a model is taken to think while it shows nothing. Most are nearer to this; the time also holds their queue. */
export const HIDDEN_TOKENS_PER_SECOND = FASTEST_TOKENS_PER_SECOND * COUNTED_SHARE;
/** Of the silence, the way there and back and the reading of the prompt. */
export const PREFILL_MS = 250;
const SEEN: Unreported = { textBytes: 0, silentMs: 0, isReserved: false };

const NOTHING: Tokens = { prompt: 0, completion: 0, cached: 0, reasoning: 0 };

export class UsageMeter {
  readonly #estimate: Estimate;
  readonly #uses: AttemptUse[] = [];
  #attempts = 0;

  constructor(estimate: Estimate) {
    this.#estimate = estimate;
  }

  note(use: AttemptUse): void {
    this.#attempts += 1;
    if (use.isSent) this.#uses.push(use);
  }

  /** @returns undefined when the request reached no upstream */
  read(): MeterReading | undefined {
    const last = this.#uses.findLast(({ outcome }) => outcome !== 'superseded') ?? this.#uses.at(-1);
    if (last === undefined) return undefined;
    const extra = this.#uses.flatMap(({ upstream, provider, usage }, index) =>
      usage === null || this.#uses[index] === last ? [] : [{ upstream, provider, tokens: tokensOf(usage) }],
    );
    const { upstream, provider } = last;
    return { upstream, provider, attempts: this.#attempts, ...this.#count(last), extra };
  }

  /** What the upstream says counts, and for what came behind its last word an estimate. */
  #count(use: AttemptUse): Pick<MeterReading, 'tokens' | 'isEstimated' | 'isReported'> {
    const { usage, outcome, outputs, isRefused = false } = use;
    if (usage !== null) {
      const tokens = tokensOf(usage);
      // Behind the report of a whole answer nothing is left, unless it reports early, or the input alone.
      const more = isUnfinished(use) ? this.#unreported(use, usage.completion) : visible(use);
      const completion = tokens.completion + more;
      return { tokens: { ...tokens, completion }, isEstimated: more > 0, isReported: more === 0 };
    }
    const isReported = false;
    // An upstream that failed before any output, or said itself that it failed, has charged nothing.
    if (isRefused || (outputs === 0 && outcome !== 'ok' && outcome !== 'client_closed')) {
      return { tokens: NOTHING, isEstimated: false, isReported };
    }
    if (outcome === 'upstream_error') return { tokens: NOTHING, isEstimated: true, isReported };
    const completion = outcome === 'ok' ? visible(use) : this.#unreported(use, 0);
    const { prompt } = this.#estimate;
    return { tokens: { ...NOTHING, prompt, completion }, isEstimated: true, isReported };
  }

  /**
   * Output of an answer that nobody waited for or that broke off: what was seen of it, and what may have been thought in silence;
   * where none was to be seen before all of it, at least what was reserved. The client's own bound holds for what nobody saw.
   * @param reported tokens of it that the upstream has told
   */
  #unreported(use: AttemptUse, reported: number): number {
    const { completion, isBounded, choices = 0 } = this.#estimate;
    const seen = visible(use);
    const { silentMs, isReserved } = use.unreported ?? SEEN;
    const thinkingMs = Math.max(0, silentMs - PREFILL_MS);
    const thought = Math.floor((thinkingMs / 1000) * HIDDEN_TOKENS_PER_SECOND * choices);
    const assumed = Math.max(seen + thought, isReserved ? completion : 0);
    return isBounded ? Math.max(seen, Math.min(assumed, completion - reported)) : assumed;
  }
}

/** By its bytes, and at least a token for each frame. */
function visible({ outputs, unreported }: AttemptUse): number {
  return Math.max(outputs, Math.floor((unreported?.textBytes ?? 0) / BYTES_PER_TOKEN));
}

function isUnfinished({ outcome }: AttemptUse): boolean {
  return outcome !== 'ok' && outcome !== 'upstream_error' && outcome !== 'superseded';
}

function tokensOf({ prompt, completion, cached, reasoning }: Usage): Tokens {
  return { prompt, completion, cached, reasoning };
}
