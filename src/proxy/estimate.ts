// How many tokens a request may come to, before anybody has counted: for a reservation, and for what was never measured.
import type { RequestScan } from './request-scan.ts';

/** Of text in a European language; other scripts have more bytes a token, and code has fewer. */
const BYTES_PER_TOKEN = 4;
/** Reserved for an answer of which the client did not say how long it may be. */
export const ANSWER_TOKENS = 256;
/** What an image, a sound or a file comes to: their bytes say nothing about it. */
export const ATTACHMENT_TOKENS = 1000;
const BASE64 = Buffer.from(';base64,');
/** The value of `data` in `input_audio`. */
const AUDIO = Buffer.from('"data":"');
/** A shorter one is not worth the search, and may be text. */
const SHORTEST_ATTACHMENT = 4096;
const QUOTE = 0x22;

export interface Estimate {
  readonly prompt: number;
  /** The most that the client allows, or what is assumed where it allows anything. */
  readonly completion: number;
  /** The client itself said how long the answer may be. */
  readonly isBounded: boolean;
}

/** @param body the client's body, which `scan` was made from */
export function estimateTokens(
  body: Buffer,
  { maxTokens, choices }: Pick<RequestScan, 'maxTokens' | 'choices'>,
): Estimate {
  return {
    prompt: tokensOfInput(body),
    // Whatever it says: sums of it have to stay exact.
    completion: Math.min((maxTokens ?? ANSWER_TOKENS) * choices, Number.MAX_SAFE_INTEGER / 4096),
    isBounded: maxTokens !== null,
  };
}

/** What a request comes to, without its answer. */
export function tokensOfInput(body: Buffer): number {
  let bytes = body.length;
  let prompt = 0;
  if (bytes > SHORTEST_ATTACHMENT) {
    for (const mark of [BASE64, AUDIO]) {
      for (let at = body.indexOf(mark); at !== -1; at = body.indexOf(mark, at)) {
        at += mark.length;
        const end = body.indexOf(QUOTE, at);
        if (end === -1) break;
        if (end - at >= SHORTEST_ATTACHMENT) {
          bytes -= end - at;
          prompt += ATTACHMENT_TOKENS;
        }
        at = end;
      }
    }
  }
  return prompt + tokensOf(Math.max(0, bytes));
}

/** What so many bytes of text come to. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}
