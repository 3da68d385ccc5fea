// Usage of the answers in a realtime session: as reported by the upstream, and estimated where it is not. It reads the events of both
// sides one by one, and keeps only sums that are not counted yet.
import { memberOf, parse } from '../../wire/error-answer.ts';
import { decodeString, JsonScanner } from '../../wire/json/json.ts';
import { outputTextOf, TextCount } from '../../wire/output-text.ts';
import {
  eachTokenPart,
  NO_DETAILS,
  type Quantities,
  SOUND_TOKEN_MS,
  type Tokens,
  tokenParts,
  usageIn,
} from '../../wire/token-usage.ts';
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
/** Of OpenAI's API, and of vLLM's. */
const TRANSCRIBED = /transcription\.(completed|done)$/;

export interface SessionUse {
  readonly tokens: Tokens;
  /** The upstream did not report it. */
  readonly isEstimated: boolean;
  /** What the tokens are converted from: the duration of transcribed sound. */
  readonly measured?: Quantities;
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
  /** Running answers; in a session that only transcribes, its running transcriptions. */
  #open = 0;
  #onlyTranscribes = false;
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
    // Of vLLM, and of older sessions of OpenAI.
    this.#onlyTranscribes ||= type.startsWith('transcription');
    if (type.endsWith('.delta')) {
      const pending = type.startsWith('conversation.') ? this.#transcripts : this.#output;
      const isSound = type.endsWith('audio.delta');
      pending.add(this.#tokensOf('output', isSound), isSound);
    } else if (type === 'response.done') this.#done(parse(text.toString()));
    else if (type === 'response.created') this.#begin();
    else if (type === 'input_audio_buffer.committed') {
      if (this.#onlyTranscribes) this.#begin();
      else this.#isRequested = true;
    } else if (/session\.(created|updated)$/.test(type))
      this.#readSession(memberOf(parse(text.toString()), 'session'));
    else if (TRANSCRIBED.test(type)) this.#transcribed(parse(text.toString()));
    else if (type.endsWith('transcription.failed') && this.#onlyTranscribes) this.#close();
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

  /** An answer, or a transcription, is under way. */
  #begin(): void {
    this.#isRequested = false;
    this.#open += 1;
    this.#prompt.take(this.#input);
  }

  /** One part of the input was transcribed. Beside a conversation, only what is reported counts. */
  #transcribed(event: unknown): void {
    const use = reported(memberOf(event, 'usage'));
    if (use === undefined && this.#onlyTranscribes) {
      this.#output.take(this.#transcripts);
      this.#estimate();
      return;
    }
    this.#transcripts.clear();
    if (this.#onlyTranscribes) this.#close();
    if (use !== undefined) this.#onUse(use);
  }

  #done(event: unknown): void {
    const response = memberOf(event, 'response');
    const use = reported(memberOf(response, 'usage'));
    const isReported =
      use !== undefined && (use.tokens.prompt + use.tokens.completion > 0 || this.#output.isEmpty);
    // An answer that failed before any output used nothing.
    const isUnused = !isReported && this.#output.isEmpty && memberOf(response, 'status') === 'failed';
    if (!isReported && !isUnused) this.#estimate();
    else {
      this.#close();
      if (isReported) this.#use(use);
    }
  }

  #estimate(): void {
    const hasBegun = this.#open > 0;
    if (!hasBegun || this.#isRequested) this.#prompt.take(this.#input);
    // The upstream reads the whole conversation again, from its cache.
    const cached = !this.#onlyTranscribes && (hasBegun || this.#isRequested) ? this.#context : 0;
    const prompt = this.#prompt.tokens(false) + cached;
    const completion = this.#output.tokens(true);
    const [audioInput, audioOutput] = [this.#prompt.sound, this.#output.sound];
    this.#close();
    if (prompt + completion === 0) return;
    const counts = { ...eachTokenPart(() => 0), prompt, completion, cached };
    const details = { ...NO_DETAILS, audioInput, audioOutput };
    const tokens = audioInput + audioOutput > 0 ? { ...counts, details } : counts;
    const measured = { milliseconds: audioInput * SOUND_TOKEN_MS };
    this.#use({ tokens, isEstimated: true, ...(this.#onlyTranscribes ? { measured } : {}) });
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
    // Transcriptions that run beside each other share it.
    if (!this.#onlyTranscribes || this.#open === 0) this.#prompt.clear();
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

  #readSession(session: unknown): void {
    this.#onlyTranscribes ||= memberOf(session, 'type') === 'transcription';
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

/** @returns undefined where nothing is reported */
function reported(usage: unknown): SessionUse | undefined {
  const { prompt, completion, measured } = usageIn(usage);
  const isGiven = ['input_tokens', 'output_tokens'].some((name) => typeof memberOf(usage, name) === 'number');
  if (!isGiven && prompt + completion === 0) return undefined;
  const tokens = { prompt, completion, ...tokenParts(usage) };
  return { tokens, isEstimated: false, ...(measured === undefined ? {} : { measured }) };
}
