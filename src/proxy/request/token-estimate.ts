// Token estimates before the upstream reports usage: for reservations, and for output that was never measured. attachments.ts
// counts attachments.

/** For European languages; other scripts have more bytes per token, and code fewer. */
export const BYTES_PER_TOKEN = 4;
/** Reserved for an answer without a length limit by the client. */
export const ANSWER_TOKENS = 256;

export interface Estimate {
  /** To reserve. */
  readonly prompt: number;
  /** What counts beyond `prompt` where the upstream reports nothing. Default 0. */
  readonly promptText?: number;
  /** The client's limit, or an assumption without one. */
  readonly completion: number;
  /** The client set a limit. */
  readonly isBounded: boolean;
  /** Text answers generated at once; undefined where the model generates no text. */
  readonly choices?: number;
}

/** The input of an estimate, from a request. */
export interface Counts {
  readonly inputTokens: number;
  readonly textTokens: number;
  /** Per answer; null without a limit. */
  readonly maxTokens: number | null;
  readonly choices: number;
}

/** Estimates the tokens of a request and its answer. */
export function estimateTokens({ maxTokens, choices, inputTokens, textTokens }: Counts): Estimate {
  return {
    prompt: inputTokens,
    promptText: textTokens,
    // Capped, so that sums stay exact integers.
    completion: Math.min((maxTokens ?? ANSWER_TOKENS) * choices, Number.MAX_SAFE_INTEGER / 4096),
    isBounded: maxTokens !== null,
    choices,
  };
}

/** The tokens of a text of this size. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}
