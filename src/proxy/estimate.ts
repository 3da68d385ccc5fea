// How many tokens a request may come to, before anybody has counted: for a reservation, and for what was never measured.
import type { RequestScan } from './request-scan.ts';

/** Of text in a European language; other scripts have more bytes a token, and code has fewer. */
export const BYTES_PER_TOKEN = 4;
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
  /** Answers in text that are written at the same time; undefined where a model writes none. */
  readonly choices?: number;
}

/** @param body the client's body, which `scan` was made from */
export function estimateTokens(
  body: Buffer,
  { maxTokens, choices, inputTokens }: Pick<RequestScan, 'maxTokens' | 'choices' | 'inputTokens'>,
): Estimate {
  return {
    prompt: inputTokens ?? tokensOfInput(body),
    // Whatever it says: sums of it have to stay exact.
    completion: Math.min((maxTokens ?? ANSWER_TOKENS) * choices, Number.MAX_SAFE_INTEGER / 4096),
    isBounded: maxTokens !== null,
    choices,
  };
}

/** What a request comes to, without its answer. */
export function tokensOfInput(body: Buffer): number {
  if (body.length <= SHORTEST_ATTACHMENT) return tokensOf(body.length);
  const count = new InputCount();
  count.advance(body, body.length);
  return count.tokens(body.length);
}

/** Of a body that comes in pieces: finds what is attached to it, and looks at no byte again for each piece. */
export class InputCount {
  readonly #searches = [new Search(BASE64), new Search(AUDIO)] as const;

  /** @param end so much of the body has come: at least as much as before */
  advance(body: Buffer, end: number): void {
    const come = end === body.length ? body : body.subarray(0, end);
    for (const search of this.#searches) search.advance(come);
  }

  /** @param size of the whole body, in bytes */
  tokens(size: number): number {
    const [base64, audio] = this.#searches;
    const text = size - base64.bytes - audio.bytes;
    return (base64.found + audio.found) * ATTACHMENT_TOKENS + tokensOf(Math.max(0, text));
  }
}

/** What stands between a mark and the end of its string. */
class Search {
  /** Attachments, and bytes in them. */
  found = 0;
  bytes = 0;
  readonly #mark: Buffer;
  #at = 0;
  /** Behind a mark whose string has not ended. */
  #from: number | undefined;

  constructor(mark: Buffer) {
    this.#mark = mark;
  }

  advance(body: Buffer): void {
    const { length } = this.#mark;
    for (;;) {
      if (this.#from === undefined) {
        const at = body.indexOf(this.#mark, this.#at);
        if (at === -1) {
          this.#at = Math.max(this.#at, body.length - length + 1);
          return;
        }
        this.#from = this.#at = at + length;
      }
      const end = body.indexOf(QUOTE, this.#at);
      if (end === -1) {
        this.#at = body.length;
        return;
      }
      if (end - this.#from >= SHORTEST_ATTACHMENT) {
        this.bytes += end - this.#from;
        this.found += 1;
      }
      this.#from = undefined;
      this.#at = end;
    }
  }
}

/** What so many bytes of text come to. */
export function tokensOf(bytes: number): number {
  return Math.ceil(bytes / BYTES_PER_TOKEN);
}
