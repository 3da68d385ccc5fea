// Reads from the events of a realtime session what its answers used. It sees texts one by one and remembers only what of an
// answer has come that nobody has counted yet.
import { memberOf, parse } from '../upstream/outcome.ts';
import type { Tokens } from './meter.ts';

/** Every event that counts something has this, and few others have. */
const USAGE = Buffer.from('"usage"');
/** Events with a piece of output are called so, and say it at their beginning. */
const DELTA = Buffer.from('.delta"');
const DELTA_WITHIN = 256;

export interface SessionUse {
  readonly tokens: Tokens;
  /** The upstream did not say it. */
  readonly isEstimated: boolean;
}

export class SessionUsage {
  readonly #onUse: (use: SessionUse) => void;
  /** Pieces of output since an answer was last counted. */
  #deltas = 0;

  /** @param onUse called for each answer, and for each transcription that is counted in tokens */
  constructor(onUse: (use: SessionUse) => void) {
    this.#onUse = onUse;
  }

  /** @param text an event of the upstream's */
  read(text: Buffer): void {
    if (text.subarray(0, DELTA_WITHIN).includes(DELTA)) this.#deltas += 1;
    if (!text.includes(USAGE)) return;
    const event = parse(text.toString());
    const type = memberOf(event, 'type');
    if (type === 'response.done') {
      this.#deltas = 0;
      const tokens = tokensOf(memberOf(memberOf(event, 'response'), 'usage'));
      if (tokens !== undefined) this.#onUse({ tokens, isEstimated: false });
    } else if (typeof type === 'string' && type.endsWith('.completed')) {
      const tokens = tokensOf(memberOf(event, 'usage'));
      if (tokens !== undefined) this.#onUse({ tokens, isEstimated: false });
    }
  }

  /** The session is over: what came of an answer that was not finished counts a token for each piece. */
  end(): void {
    const completion = this.#deltas;
    this.#deltas = 0;
    if (completion > 0)
      this.#onUse({ tokens: { prompt: 0, completion, cached: 0, reasoning: 0 }, isEstimated: true });
  }
}

/** @returns undefined where it holds no count of tokens (null, or a duration) */
function tokensOf(usage: unknown): Tokens | undefined {
  const prompt = memberOf(usage, 'input_tokens');
  const completion = memberOf(usage, 'output_tokens');
  if (typeof prompt !== 'number' && typeof completion !== 'number') return undefined;
  return {
    prompt: count(prompt),
    completion: count(completion),
    cached: count(memberOf(memberOf(usage, 'input_token_details'), 'cached_tokens')),
    reasoning: count(memberOf(memberOf(usage, 'output_token_details'), 'reasoning_tokens')),
  };
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 && value <= 1e9 ? Math.ceil(value) : 0;
}
