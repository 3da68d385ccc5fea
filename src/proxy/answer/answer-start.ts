// The choice of a reader for an answer with status 200, by its first bytes; the content-type is only a hint. Servers label JSON as
// text or bytes, errors as event streams, and event streams as JSON or not at all.
import type { GatewayError } from '../../errors.ts';
import { isJson, mediaType } from '../../http/multipart/media-type.ts';
import { judgeErrorObject } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { isErrorEvent } from '../../wire/answer-shape.ts';
import { SseFrameScanner } from '../../wire/sse-frames.ts';
import type { AttemptResult, Receiver, RelayRequest, Source } from '../contracts/receiver.ts';
import { BytesRelay } from './bytes-relay.ts';
import { EmbeddingsRelay } from './embeddings-relay.ts';
import { JsonAnswer } from './json-answer.ts';
import { StreamRelay } from './stream/stream-relay.ts';
import { StreamUsage } from './stream/stream-usage.ts';
import { UsageOnlyReader } from './stream/usage-only-reader.ts';

type Kind = 'events' | 'json' | 'bytes' | 'unknown';

const NO_BYTES: Buffer = Buffer.alloc(0);
const SPACE = 0x20;
const OPEN_OBJECT = 0x7b;
/** Beginnings of an event stream under another label. */
const EVENTS = ['data:', 'event:', ': '] as const;
/** Sound and text may begin with a brace by chance: there, JSON needs a member name. */
const JSON_START = /^\{\s*"(?:[\w.-]{1,64}"\s*:)?/;
const UNREQUESTED = 'The upstream answered with a stream that was not requested.';
/** Bytes examined after leading white space. */
const SAMPLE_BYTES = 96;
/** Some upstreams send blank lines while they work. Beyond this, the label decides. */
const MAX_HELD_BYTES = 64 * 1024;

/** Reads the beginning of an answer, and passes it to the reader for its kind. */
export class AnswerStart implements Receiver {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #type: string;
  readonly #label: Kind;
  /** Created early for a stream: its commit timer may open it before the first byte. */
  readonly #relay: StreamRelay | undefined;
  #held: Buffer | undefined;

  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
    this.#type = mediaType(headers);
    this.#label = this.#kindOfLabel();
    source.expects(this.#label !== 'json');
    if (this.#label === 'events' && request.facts.stream)
      this.#relay = new StreamRelay(request, headers, source);
  }

  data(chunk: Buffer): void {
    const relay = this.#relay;
    const first = chunk[0] ?? SPACE;
    if (relay !== undefined && ((first > SPACE && first !== OPEN_OBJECT) || relay.isOpen)) {
      this.#source.reads(relay);
      relay.data(chunk);
      return;
    }
    const bytes = this.#held === undefined ? chunk : Buffer.concat([this.#held, chunk]);
    const kind = this.#kindOf(bytes);
    if (kind === undefined) this.#held = bytes;
    else this.#begin(kind, bytes);
  }

  end(): void {
    this.#begin(this.#label, this.#held)?.end();
  }

  broken(error: GatewayError): AttemptResult | undefined {
    return this.#relay?.broken(error);
  }

  leave(): boolean {
    return this.#relay?.leave() === true;
  }

  soleAttempt(): void {
    this.#relay?.soleAttempt();
  }

  dispose(): void {
    this.#relay?.dispose();
  }

  #kindOfLabel(): Kind {
    const { endpoint, facts } = this.#request;
    if (this.#type === 'text/event-stream') return 'events';
    if (isJson(this.#type)) return 'json';
    const isBytes = endpoint.isBinary?.(this.#type, facts) === true;
    return isBytes && (!facts.stream || endpoint.bytesAsStream !== undefined) ? 'bytes' : 'unknown';
  }

  /** @returns undefined where more bytes are needed */
  #kindOf(bytes: Buffer): Kind | undefined {
    const isLast = bytes.length > MAX_HELD_BYTES;
    const start = firstByte(bytes);
    if (start === bytes.length) return isLast ? this.#label : undefined;
    const isObject = bytes[start] === OPEN_OBJECT;
    if (isObject && this.#label !== 'bytes') return 'json';
    const sample = bytes.toString('latin1', start, start + SAMPLE_BYTES);
    const isShort = sample.length < SAMPLE_BYTES;
    if (isObject) {
      const [found] = JSON_START.exec(sample) ?? [];
      if (found?.endsWith(':') === true) return 'json';
      // The sample ends within what may still become a member name.
      return isShort && /^\{\s*(?:"[\w.-]*"?\s*)?$/.test(sample) ? undefined : this.#label;
    }
    const { stream } = this.#request.facts;
    const isEvents = this.#label === 'events' || EVENTS.some((field) => sample.startsWith(field));
    if (this.#label === 'bytes' && !stream) return 'bytes';
    if (isEvents && !stream && !isLast) return hasWholeEvent(bytes.subarray(start)) ? 'events' : undefined;
    if (isEvents) return 'events';
    return !isLast && EVENTS.some((field) => field.startsWith(sample)) ? undefined : this.#label;
  }

  #begin(kind: Kind, bytes: Buffer | undefined): Receiver | undefined {
    const reader = this.#readerOf(kind);
    if (reader === undefined) {
      if (kind === 'events') return this.#rejectEvents(bytes ?? NO_BYTES);
      this.#source.unusable(`content-type ${this.#type || 'missing'}`);
      return undefined;
    }
    this.#source.reads(reader);
    if (reader !== this.#relay) this.#relay?.dispose();
    if (bytes !== undefined) reader.data(bytes);
    return reader;
  }

  /** Handles an unrequested stream: an error in it counts as an error; otherwise the upstream did the work, whose usage is read. */
  #rejectEvents(bytes: Buffer): Receiver | undefined {
    const text = bytes.toString('utf8', firstByte(bytes));
    if (!EVENTS.some((field) => text.startsWith(field)))
      this.#source.unusable(`content-type ${this.#type || 'missing'}`);
    else if (isErrorEvent(text))
      this.#source.finish({ kind: 'failed', failure: judgeErrorObject(text, this.#headers) });
    else {
      const [request, source] = [this.#request, this.#source];
      const frames = request.endpoint.frames?.((created) => void source.created?.(created));
      const scanner = new SseFrameScanner(request.config.max_answer.frame);
      const usage = new StreamUsage(request, source, frames);
      const reader = new UsageOnlyReader(source, scanner, usage, frames, UNREQUESTED);
      source.reads(reader);
      reader.data(bytes);
      return reader;
    }
    return undefined;
  }

  #readerOf(kind: Kind): Receiver | undefined {
    if (kind !== this.#label && kind !== 'unknown') this.#source.expects(kind !== 'json');
    const headers = this.#headers;
    switch (kind) {
      case 'events':
        if (!this.#request.facts.stream) return undefined;
        return this.#relay ?? new StreamRelay(this.#request, headers, this.#source);
      case 'json': {
        const Reader = this.#request.endpoint.isEmbeddings === true ? EmbeddingsRelay : JsonAnswer;
        return new Reader(this.#request, headers, this.#source, this.#label === 'json');
      }
      case 'bytes': {
        // With its parameters, which carry the sample rate of raw sound.
        const { 'content-type': full } = headers;
        const type = typeof full === 'string' ? full : this.#type;
        return new BytesRelay(this.#request, type, headers, this.#source);
      }
      default:
        return undefined;
    }
  }
}

/** The offset of the text after a byte order mark and white space; the length where there is none. */
function firstByte(bytes: Buffer): number {
  let at = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  while (at < bytes.length && (bytes[at] ?? 0) <= SPACE) at += 1;
  return at;
}

/** An unrequested stream needs a complete event to tell an error from an answer. */
function hasWholeEvent(bytes: Buffer): boolean {
  return /(?:^|[\r\n])data:[\s\S]*?(?:\n\r?\n|\r\r)/.test(bytes.toString('latin1'));
}
