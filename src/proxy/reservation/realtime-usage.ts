// Reads from the events of a realtime session what its answers used: what the upstream reports, and an estimate of what it
// does not. It sees events one by one, of both sides, and remembers of an answer only sums that are not counted yet.
import { memberOf, parse } from '../../upstream/error-outcome.ts';
import { decodeString, JsonScanner } from '../../wire/json.ts';
import { outputTextOf, TextCount } from '../../wire/output-text.ts';
import { BYTES_PER_TOKEN } from '../request/token-estimate.ts';
import type { Tokens } from './usage-meter.ts';

/** What OpenAI bills: a token for 100 ms of sound that it hears, and for 50 ms that it speaks. */
const TOKENS_PER_SECOND = { input: 10, output: 20 } as const;
/** Bytes a second: PCM of 16 bits at 24 kHz, unless the session says G.711, of 8 bits at 8 kHz. */
const PCM_RATE = 48_000;
const G711_RATE = 8_000;
const G711 = /g711|pcmu|pcma/;
/** Base64 has four bytes for three. */
const BASE64 = 4 / 3;
const QUOTE = 0x22;

export interface SessionUse {
  readonly tokens: Tokens;
  /** The upstream did not say it. */
  readonly isEstimated: boolean;
}

/** Output of answers, or input for them, that no report covers. */
class Pending {
  #events = 0;
  /** Of text four bytes, of sound its duration. */
  #tokens = 0;

  get isEmpty(): boolean {
    return this.#events === 0;
  }

  add(tokens: number): void {
    this.#events += 1;
    this.#tokens += tokens;
  }

  /** Takes over what another one has. */
  take(other: Pending): void {
    this.#events += other.#events;
    this.#tokens += other.#tokens;
    other.clear();
  }

  clear(): void {
    this.#events = 0;
    this.#tokens = 0;
  }

  tokens(isAtLeastOneEach: boolean): number {
    return Math.max(isAtLeastOneEach ? this.#events : 0, Math.floor(this.#tokens));
  }
}

export class SessionUsage {
  readonly #onUse: (use: SessionUse) => void;
  readonly #scanner = new JsonScanner();
  readonly #count = new TextCount();
  readonly #output = new Pending();
  readonly #transcripts = new Pending();
  /** What the client has sent for answers that have begun, and since. */
  readonly #prompt = new Pending();
  readonly #input = new Pending();
  /** Answers that have begun and not ended. */
  #open = 0;
  /** One was asked for, by the client or by what it said, and has not begun. */
  #isAsked = false;
  /** Tokens of the conversation up to the last answer. */
  #context = 0;
  #soundTokens = { input: soundTokens('input', ''), output: soundTokens('output', '') };

  /** @param onUse called for each answer, and for each transcription that is counted in tokens */
  constructor(onUse: (use: SessionUse) => void) {
    this.#onUse = onUse;
  }

  /** What an answer used is still to be reported. */
  get isOwed(): boolean {
    return this.#isAsked || this.#open > 0 || !this.#output.isEmpty;
  }

  /** @param text an event of the upstream's */
  read(text: Buffer): void {
    const type = this.#scan(text, 'delta');
    if (type.endsWith('.delta')) {
      const pending = type.startsWith('conversation.') ? this.#transcripts : this.#output;
      pending.add(this.#tokensOf('output', type.endsWith('audio.delta')));
    } else if (type === 'response.done') this.#done(parse(text.toString()));
    else if (type === 'response.created') {
      this.#isAsked = false;
      this.#open += 1;
      this.#prompt.take(this.#input);
    } else if (type === 'input_audio_buffer.committed') this.#isAsked = true;
    else if (type === 'session.created' || type === 'session.updated') {
      this.#readFormats(memberOf(parse(text.toString()), 'session'));
    } else if (type.endsWith('.completed')) {
      const tokens = reported(memberOf(parse(text.toString()), 'usage'));
      if (type.endsWith('transcription.completed')) this.#transcripts.clear();
      if (tokens !== undefined) this.#onUse({ tokens, isEstimated: false });
    }
  }

  /** @param text an event of the client's */
  readInput(text: Buffer): void {
    const type = this.#scan(text, 'audio');
    if (type === 'input_audio_buffer.append') this.#input.add(this.#tokensOf('input', true));
    else if (type !== '') {
      this.#scanner.reset(text);
      this.#input.add(outputTextOf(this.#scanner, text) / BYTES_PER_TOKEN);
    }
    if (type === 'response.create') this.#isAsked = true;
  }

  /** An event of the upstream's that is too long to be read. @param head what it begins with */
  readLong(bytes: number, head: Buffer): void {
    const start = head.toString('latin1');
    if (start.includes('.delta"')) {
      this.#output.add(this.#ofBytes(bytes, 'output', start.includes('audio.delta"')));
    } else if (start.includes('"response.done"')) this.#estimate();
  }

  /** The same of the client's: text, or sound or an image in base64, whatever it begins with. */
  readLongInput(bytes: number, head: Buffer): void {
    const isMedia = /"(?:input_audio_buffer\.append|input_audio|input_image)"/.test(head.toString('latin1'));
    this.#input.add(this.#ofBytes(bytes, 'input', isMedia));
    if (head.includes('"response.create"')) this.#isAsked = true;
  }

  /** The session is over: what came of an answer that was not finished is estimated, and what was sent for it. */
  end(): void {
    const isOwed = this.isOwed || !this.#transcripts.isEmpty;
    this.#output.take(this.#transcripts);
    if (isOwed) this.#estimate();
    this.#input.clear();
    this.#isAsked = false;
    this.#open = 0;
  }

  #done(event: unknown): void {
    const response = memberOf(event, 'response');
    const tokens = reported(memberOf(response, 'usage'));
    const isTold = tokens !== undefined && (tokens.prompt + tokens.completion > 0 || this.#output.isEmpty);
    // One that failed before any output has used nothing.
    const isNothing = !isTold && this.#output.isEmpty && memberOf(response, 'status') === 'failed';
    if (!isTold && !isNothing) this.#estimate();
    else {
      this.#close();
      if (isTold) this.#use({ tokens, isEstimated: false });
    }
  }

  #estimate(): void {
    const hasBegun = this.#open > 0;
    if (!hasBegun || this.#isAsked) this.#prompt.take(this.#input);
    // The upstream reads all of the conversation again, and has it in its cache.
    const cached = hasBegun || this.#isAsked ? this.#context : 0;
    const prompt = this.#prompt.tokens(false) + cached;
    const completion = this.#output.tokens(true);
    this.#close();
    if (prompt + completion > 0)
      this.#use({ tokens: { prompt, completion, cached, reasoning: 0 }, isEstimated: true });
  }

  #use(use: SessionUse): void {
    this.#context = use.tokens.prompt + use.tokens.completion;
    this.#onUse(use);
  }

  /** An answer is over, and counted. What was sent while it was under way is for the next one. */
  #close(): void {
    if (this.#open === 0) this.#input.clear();
    this.#open = Math.max(0, this.#open - 1);
    this.#output.clear();
    this.#prompt.clear();
  }

  /** @returns its type; empty where it is none */
  #scan(text: Buffer, member: 'delta' | 'audio'): string {
    const scanner = this.#scanner;
    let type = '';
    this.#count.begin();
    scanner.reset(text);
    if (!scanner.enterObject()) return '';
    while (scanner.nextMember()) {
      const { pos: start } = scanner;
      if (scanner.keyIs('type') && text[start] === QUOTE) {
        if (scanner.skipValue()) type = decodeString(text, { start, end: scanner.pos });
      } else if (scanner.keyIs(member) && text[start] === QUOTE) {
        if (scanner.skipValue()) this.#count.bytes += scanner.pos - start - 2;
      } else scanner.skipValue();
    }
    return scanner.finish() ? type : '';
  }

  #tokensOf(side: 'input' | 'output', isSound: boolean): number {
    return this.#ofBytes(this.#count.bytes, side, isSound);
  }

  #ofBytes(bytes: number, side: 'input' | 'output', isSound: boolean): number {
    return isSound ? bytes * this.#soundTokens[side] : bytes / BYTES_PER_TOKEN;
  }

  #readFormats(session: unknown): void {
    const formatOf = (side: 'input' | 'output') =>
      memberOf(memberOf(memberOf(memberOf(session, 'audio'), side), 'format'), 'type') ??
      memberOf(session, `${side}_audio_format`);
    this.#soundTokens = {
      input: soundTokens('input', formatOf('input')),
      output: soundTokens('output', formatOf('output')),
    };
  }
}

/** Of a byte of base64. */
function soundTokens(side: 'input' | 'output', format: unknown): number {
  const rate = typeof format === 'string' && G711.test(format) ? G711_RATE : PCM_RATE;
  return TOKENS_PER_SECOND[side] / (rate * BASE64);
}

/** @returns undefined where it holds no count of tokens (null, or a duration) */
function reported(usage: unknown): Tokens | undefined {
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
