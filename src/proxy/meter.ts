// What one request has used, put together from what its attempts have seen. It counts nothing itself and writes nothing down.
import type { Usage } from './chunk.ts';
import type { Estimate } from './estimate.ts';
import type { AttemptUse } from './receiver.ts';

export type Tokens = Pick<Usage, 'prompt' | 'completion' | 'cached' | 'reasoning'>;

export interface MeterReading {
  /** Of the attempt that counts: the one that the client was answered from, or else the last. */
  readonly upstream: string;
  readonly provider: string;
  /** Requests to upstreams, of which some may not have been sent. */
  readonly attempts: number;
  readonly tokens: Tokens;
  /** No upstream said it. */
  readonly isEstimated: boolean;
  /** What others have used before or beside it. */
  readonly extra: readonly {
    readonly upstream: string;
    readonly provider: string;
    readonly tokens: Tokens;
  }[];
}

const NOTHING: Tokens = { prompt: 0, completion: 0, cached: 0, reasoning: 0 };

export class Meter {
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
    const { upstream, provider, usage } = last;
    const attempts = this.#attempts;
    return usage === null
      ? { upstream, provider, attempts, tokens: this.#guess(last), isEstimated: true, extra }
      : { upstream, provider, attempts, tokens: tokensOf(usage), isEstimated: false, extra };
  }

  /** An upstream that failed before any output, or said itself that it failed, and nothing of usage, has charged nothing. */
  #guess({ outcome, outputs }: AttemptUse): Tokens {
    const hasBegun = outputs > 0 && outcome !== 'upstream_error';
    const isCharged = hasBegun || outcome === 'ok' || outcome === 'client_closed';
    return isCharged ? { ...NOTHING, prompt: this.#estimate.prompt, completion: outputs } : NOTHING;
  }
}

function tokensOf({ prompt, completion, cached, reasoning }: Usage): Tokens {
  return { prompt, completion, cached, reasoning };
}
