// Usage of the answers in a realtime session: as reported by the upstream, and estimated where it is not. It reads the events of both
// sides one by one, and keeps only sums that are not counted yet.
import { memberOf, parse } from '../../upstream/error-outcome.ts';
import { decodeString, JsonScanner } from '../../wire/json.ts';
import { outputTextOf, TextCount } from '../../wire/output-text.ts';
import { eachTokenPart, NO_DETAILS, type Tokens, tokenParts } from '../../wire/token-usage.ts';
import { BYTES_PER_TOKEN } from '../request/token-estimate.ts';

/** OpenAI bills a token per 100 ms of input sound and per 50 ms of output sound. */
const TOKENS_PER_SECOND = { input: 10, output: 20 } as const;
/** Bytes per second: 16-bit PCM at 24 kHz, unless the session selects G.711 with 8 bits at 8 kHz. */
const PCM_RATE = 48_000;
const G711_RATE = 8_000;
const G711 = /g711|pcmu|pcma/;
/** Base64 has four bytes for three. */
const BASE64 = 4 / 3;
const QUOTE = 0x22;

export interface SessionUse {
  readonly tokens: Tokens;
  /** The upstream did not report it. */
  readonly isEstimated: boolean;
}

/** Output of answers, or input for them, that no report covers. */
class Pending {
  #events = 0;
  /** A token per four bytes of text; sound counts by its duration. */
  #tokens = 0;
  /** Those of sound, which have a price of their own. */
  #sound = 0;

  get isEmpty(): boolean {
    return this.#events === 0;
  }

  add(tokens: number, isSound = false): void {
    this.#events += 1;
    this.#tokens += tokens;
    if (isSound) this.#sound += tokens;
  }

  get sound(): number {
    return Math.floor(this.#sound);
  }

  /** Moves the counts of `other` to this one. */
  take(other: Pending): void {
    this.#events += other.#events;
    this.#tokens += other.#tokens;
    this.#sound += other.#sound;
    other.clear();
  }

  clear(): void {
    this.#events = 0;
    this.#tokens = 0;
    this.#sound = 0;
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
  /** Client input for running answers, and input since then. */
  readonly #prompt = new Pending();
  readonly #input = new Pending();
  /** Running answers. */
  #open = 0;
  /** An answer was requested, explicitly or by speech, and has not started. */
  #isRequested = false;
  /** Tokens of the conversation up to the last answer. */
  #context = 0;
  #soundTokens = { input: soundTokens('input', ''), output: soundTokens('output', '') };

  /** @param onUse called for each answer, and for each transcription that is counted in tokens */
  constructor(onUse: (use: SessionUse) => void) {
    this.#onUse = onUse;
  }

  /** The usage of an answer is still to be reported. */
  get awaitsUsage(): boolean {
    return this.#isRequested || this.#open > 0 || !this.#output.isEmpty;
  }

  /** @param text an event from the upstream */
  read(text: Buffer): void {
    const type = this.#scan(text, 'delta');
    if (type.endsWith('.delta')) {
      const pending = type.startsWith('conversation.') ? this.#transcripts : this.#output;
      const isSound = type.endsWith('audio.delta');
      pending.add(this.#tokensOf('output', isSound), isSound);
    } else if (type === 'response.done') this.#done(parse(text.toString()));
    else if (type === 'response.created') {
      this.#isRequested = false;
      this.#open += 1;
      this.#prompt.take(this.#input);
    } else if (type === 'input_audio_buffer.committed') this.#isRequested = true;
    else if (type === 'session.created' || type === 'session.updated') {
      this.#readFormats(memberOf(parse(text.toString()), 'session'));
    } else if (type.endsWith('.completed')) {
      const tokens = reported(memberOf(parse(text.toString()), 'usage'));
      if (type.endsWith('transcription.completed')) this.#transcripts.clear();
      if (tokens !== undefined) this.#onUse({ tokens, isEstimated: false });
    }
  }

  /** @param text an event from the client */
  readInput(text: Buffer): void {
    const type = this.#scan(text, 'audio');
    if (type === 'input_audio_buffer.append') this.#input.add(this.#tokensOf('input', true), true);
    else if (type !== '') {
      this.#scanner.reset(text);
      this.#input.add(outputTextOf(this.#scanner, text) / BYTES_PER_TOKEN);
    }
    if (type === 'response.create') this.#isRequested = true;
  }

  /** Counts an upstream event too long to parse. @param head its beginning */
  readLong(bytes: number, head: Buffer): void {
    const start = head.toString('latin1');
    if (start.includes('.delta"')) {
      const isSound = start.includes('audio.delta"');
      this.#output.add(this.#ofBytes(bytes, 'output', isSound), isSound);
    } else if (start.includes('"response.done"')) this.#estimate();
  }

  /** Counts a client event too long to parse: text, or base64 sound or images. */
  readLongInput(bytes: number, head: Buffer): void {
    const isMedia = /"(?:input_audio_buffer\.append|input_audio|input_image)"/.test(head.toString('latin1'));
    this.#input.add(this.#ofBytes(bytes, 'input', isMedia), isMedia && !head.includes('"input_image"'));
    if (head.includes('"response.create"')) this.#isRequested = true;
  }

  /** The session ended: estimates unfinished answers from their input and output. */
  end(): void {
    const awaitsUsage = this.awaitsUsage || !this.#transcripts.isEmpty;
    this.#output.take(this.#transcripts);
    if (awaitsUsage) this.#estimate();
    this.#input.clear();
    this.#isRequested = false;
    this.#open = 0;
  }

  #done(event: unknown): void {
    const response = memberOf(event, 'response');
    const tokens = reported(memberOf(response, 'usage'));
    const isReported =
      tokens !== undefined && (tokens.prompt + tokens.completion > 0 || this.#output.isEmpty);
    // An answer that failed before any output used nothing.
    const isUnused = !isReported && this.#output.isEmpty && memberOf(response, 'status') === 'failed';
    if (!isReported && !isUnused) this.#estimate();
    else {
      this.#close();
      if (isReported) this.#use({ tokens, isEstimated: false });
    }
  }

  #estimate(): void {
    const hasBegun = this.#open > 0;
    if (!hasBegun || this.#isRequested) this.#prompt.take(this.#input);
    // The upstream reads the whole conversation again, from its cache.
    const cached = hasBegun || this.#isRequested ? this.#context : 0;
    const prompt = this.#prompt.tokens(false) + cached;
    const completion = this.#output.tokens(true);
    const [audioInput, audioOutput] = [this.#prompt.sound, this.#output.sound];
    this.#close();
    if (prompt + completion === 0) return;
    const counts = { ...eachTokenPart(() => 0), prompt, completion, cached };
    const details = { ...NO_DETAILS, audioInput, audioOutput };
    const tokens = audioInput + audioOutput > 0 ? { ...counts, details } : counts;
    this.#use({ tokens, isEstimated: true });
  }

  #use(use: SessionUse): void {
    this.#context = use.tokens.prompt + use.tokens.completion;
    this.#onUse(use);
  }

  /** An answer ended and is counted. Input received meanwhile belongs to the next one. */
  #close(): void {
    if (this.#open === 0) this.#input.clear();
    this.#open = Math.max(0, this.#open - 1);
    this.#output.clear();
    this.#prompt.clear();
  }

  /** @returns the event's type; empty where it has none */
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

/** Tokens per byte of base64. */
function soundTokens(side: 'input' | 'output', format: unknown): number {
  const rate = typeof format === 'string' && G711.test(format) ? G711_RATE : PCM_RATE;
  return TOKENS_PER_SECOND[side] / (rate * BASE64);
}

/** @returns undefined where it holds no token counts (null, or a duration) */
function reported(usage: unknown): Tokens | undefined {
  const prompt = memberOf(usage, 'input_tokens');
  const completion = memberOf(usage, 'output_tokens');
  if (typeof prompt !== 'number' && typeof completion !== 'number') return undefined;
  return { prompt: count(prompt), completion: count(completion), ...tokenParts(usage) };
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 && value <= 1e9 ? Math.ceil(value) : 0;
}
