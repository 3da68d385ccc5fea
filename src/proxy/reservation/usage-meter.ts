// The usage of one request, aggregated from its attempts. It records nothing.
import type { Prices } from '../../config/prices.ts';
import type { PricedUse } from '../../usage/records/token-price.ts';
import { NO_USAGE, type Quantities, type Usage } from '../../wire/token-usage.ts';
import type { AttemptUse, Unreported } from '../contracts/receiver.ts';
import { ANSWER_TOKENS, BYTES_PER_TOKEN, type Estimate } from '../request/token-estimate.ts';

interface AboutAttempt {
  readonly upstream: string;
  readonly target: string;
  readonly provider: string;
  readonly price: Prices | undefined;
}

/** As `costOf` needs it. */
type PricedAttempt = AboutAttempt & PricedUse;

/** Of the relevant attempt: the one that answered the client, or else the last. */
interface MeterReading extends PricedAttempt {
  /** Started attempts, including those that were never sent. */
  readonly attempts: number;
  /** At least part of the tokens is estimated. False without any usage. */
  readonly isEstimated: boolean;
  /** All of the tokens are reported by the upstream. */
  readonly isReported: boolean;
  /** Usage of the other attempts. */
  readonly extra: readonly PricedAttempt[];
}

/** The least share of billed output that an estimate counts: a text token has a byte or more, and BYTES_PER_TOKEN bytes count as a token. */
export const COUNTED_SHARE = 1 / BYTES_PER_TOKEN;
/** The fastest models with hidden reasoning. */
const FASTEST_TOKENS_PER_SECOND = 200;
/** Assumed hidden reasoning during silence. Most models are closer to this; the silence also includes queueing. */
export const HIDDEN_TOKENS_PER_SECOND = FASTEST_TOKENS_PER_SECOND * COUNTED_SHARE;
/** Part of the silence: round trip and prompt processing. */
export const PREFILL_MS = 250;
const SEEN: Unreported = { textBytes: 0, silentMs: 0, isReserved: false };

export class UsageMeter {
  readonly #estimate: Estimate;
  readonly #uses: AttemptUse[] = [];
  #attempts = 0;

  constructor(estimate: Estimate) {
    this.#estimate = estimate;
  }

  add(use: AttemptUse): void {
    this.#attempts += 1;
    if (use.isSent) this.#uses.push(use);
  }

  /** @returns undefined when the request reached no upstream */
  read(): MeterReading | undefined {
    const last = this.#uses.findLast(({ outcome }) => outcome !== 'superseded') ?? this.#uses.at(-1);
    if (last === undefined) return undefined;
    const extra = this.#uses.flatMap((use): PricedAttempt[] => {
      const { upstream, target, provider, price, usage } = use;
      if (usage === null || use === last) return [];
      const about = { upstream, target, provider, price };
      const tokens = this.#withPrompt(usage);
      return [{ ...about, tokens, quantities: quantitiesOf(use), isCounted: isCounted(usage) }];
    });
    const { upstream, target, provider, price } = last;
    // V8 copies an object that a literal begins with fast, and later ones by each property.
    return { ...this.#count(last), upstream, target, provider, price, attempts: this.#attempts, extra };
  }

  get #prompt(): number {
    return this.#estimate.prompt + (this.#estimate.promptText ?? 0);
  }

  /** For an upstream that does not receive the client's bound. */
  get #unbounded(): Estimate {
    const { completion, choices = 0 } = this.#estimate;
    return { ...this.#estimate, completion: Math.max(completion, ANSWER_TOKENS * choices), isBounded: false };
  }

  /** Reported usage counts, plus an estimate of the output after the last report. */
  #count(use: AttemptUse): Omit<MeterReading, keyof AboutAttempt | 'attempts' | 'extra'> {
    const { usage, outcome, outputs, hasErrorStatus = false } = use;
    if (usage !== null) {
      // A complete answer's report leaves nothing, unless it came early or covers the input alone.
      const more = isUnfinished(use) ? this.#unreported(use, usage.completion) : visible(use);
      const whole = this.#withPrompt(usage);
      const isReported = more === 0 && whole === usage;
      return {
        tokens: more === 0 ? whole : { ...whole, completion: whole.completion + more },
        quantities: quantitiesOf(use),
        isCounted: isCounted(usage),
        isEstimated: !isReported,
        isReported,
      };
    }
    const unknown = { isCounted: false, isReported: false };
    // An upstream that failed before any output, or reported its own failure, has charged nothing.
    if (hasErrorStatus || (outputs === 0 && outcome !== 'ok' && outcome !== 'client_closed')) {
      return { ...unknown, tokens: NO_USAGE, isEstimated: false };
    }
    if (outcome === 'upstream_error') return { ...unknown, tokens: NO_USAGE, isEstimated: true };
    const completion = outcome === 'ok' ? visible(use) : this.#unreported(use, 0);
    const tokens = { ...NO_USAGE, prompt: this.#prompt, completion };
    return { ...unknown, tokens, quantities: quantitiesOf(use), isEstimated: true };
  }

  /**
   * A report of output alone gets the estimate of the prompt. No prompt has 0 tokens, but some upstreams report 0 for one that they
   * have in their cache (ollama/ollama#5370), so that a client that repeats its prompt would pay for the answers alone.
   */
  #withPrompt(usage: Usage): Usage {
    if (usage.prompt > 0 || usage.completion === 0 || !isCounted(usage)) return usage;
    return { ...usage, prompt: this.#prompt };
  }

  /**
   * Output of an aborted or broken answer: what was seen, plus assumed reasoning in silence; for answers that are all or nothing, at
   * least the reserved amount. The client's limit bounds the unseen part, where the upstream received it.
   * @param reported tokens of it in the upstream's report
   */
  #unreported(use: AttemptUse, reported: number): number {
    const {
      completion,
      isBounded,
      choices = 0,
    } = use.isUnbounded === true ? this.#unbounded : this.#estimate;
    const seen = visible(use);
    const { silentMs, isReserved } = use.unreported ?? SEEN;
    const reasoningMs = Math.max(0, silentMs - PREFILL_MS);
    const hidden = Math.floor((reasoningMs / 1000) * HIDDEN_TOKENS_PER_SECOND * choices);
    const assumed = Math.max(seen + hidden, isReserved ? completion : 0);
    return isBounded ? Math.max(seen, Math.min(assumed, completion - reported)) : assumed;
  }
}

/** Output tokens that no report covers: from its bytes, but at least a token per frame. */
export function visible({ outputs, unreported }: Pick<AttemptUse, 'outputs' | 'unreported'>): number {
  return Math.max(outputs, Math.floor((unreported?.textBytes ?? 0) / BYTES_PER_TOKEN));
}

function isUnfinished({ outcome }: AttemptUse): boolean {
  return outcome !== 'ok' && outcome !== 'upstream_error' && outcome !== 'superseded';
}

/** Whether a report counts tokens, and is not converted from something else. */
function isCounted({ measured }: Usage): boolean {
  return measured === undefined;
}

/** What it asked for; of a complete answer what that has. */
function quantitiesOf(use: AttemptUse): Quantities | undefined {
  const { quantities, measured, usage } = use;
  return quantities && { ...quantities, ...(isUnfinished(use) ? {} : measured), ...usage?.measured };
}
