// Which reader an answer with status 200 gets. Its content-type says what to expect, and its first bytes decide: servers label JSON as
// text or bytes, errors as event streams, and event streams as JSON or not at all.
import type { GatewayError } from '../../errors.ts';
import { isJson, mediaType } from '../../http/multipart/media-type.ts';
import { judgeErrorObject } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import { isErrorEvent } from '../../wire/answer-shape.ts';
import type { AttemptResult, Receiver, RelayRequest, Source } from '../contracts/receiver.ts';
import { BytesRelay } from './bytes-relay.ts';
import { EmbeddingsRelay } from './embeddings-relay.ts';
import { JsonAnswer } from './json-answer.ts';
import { StreamRelay } from './stream-relay.ts';

type Kind = 'events' | 'json' | 'bytes' | 'unknown';

const NO_BYTES: Buffer = Buffer.alloc(0);
const SPACE = 0x20;
const OPEN_OBJECT = 0x7b;
/** With which an event stream may begin, where its label says something else. */
const EVENTS = ['data:', 'event:', ': '] as const;
/** Bytes of sound and text may begin with a brace by chance: there it takes the name of a member to tell JSON. */
const JSON_START = /^\{\s*"(?:[\w.-]{1,64}"\s*:)?/;
/** What is looked at behind blank bytes. */
const SAMPLE_BYTES = 96;
/** Some upstreams send blank lines until their answer is there. Beyond this, the label decides. */
const MAX_HELD_BYTES = 64 * 1024;

/** Reads the beginning of an answer, and hands it to the reader for what it is. */
export class AnswerStart implements Receiver {
  readonly #request: RelayRequest;
  readonly #headers: ResponseHeaders;
  readonly #source: Source;
  readonly #type: string;
  readonly #label: Kind;
  /** Of a stream: it may be opened by the time alone, before its first byte. */
  readonly #relay: StreamRelay | undefined;
  #held: Buffer | undefined;

  constructor(request: RelayRequest, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#headers = headers;
    this.#source = source;
    this.#type = mediaType(headers);
    this.#label = this.#kindOfLabel();
    source.expects(this.#label !== 'json');
    if (this.#label === 'events' && request.stream) this.#relay = new StreamRelay(request, headers, source);
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

  alone(): void {
    this.#relay?.alone();
  }

  dispose(): void {
    this.#relay?.dispose();
  }

  #kindOfLabel(): Kind {
    const { endpoint, facts, stream } = this.#request;
    if (this.#type === 'text/event-stream') return 'events';
    if (isJson(this.#type)) return 'json';
    const isBytes = endpoint.isBinary?.(this.#type, facts) === true;
    return isBytes && (!stream || endpoint.bytesAsStream !== undefined) ? 'bytes' : 'unknown';
  }

  /** @returns undefined where more has to come to tell */
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
      // It goes on to the end of what is there.
      return isShort && /^\{\s*(?:"[\w.-]*"?\s*)?$/.test(sample) ? undefined : this.#label;
    }
    const { stream } = this.#request;
    const isEvents = this.#label === 'events' || EVENTS.some((field) => sample.startsWith(field));
    if (this.#label === 'bytes' && !stream) return 'bytes';
    if (isEvents && !stream && !isLast) return hasWholeEvent(bytes.subarray(start)) ? 'events' : undefined;
    if (isEvents) return 'events';
    return !isLast && EVENTS.some((field) => field.startsWith(sample)) ? undefined : this.#label;
  }

  #begin(kind: Kind, bytes: Buffer | undefined): Receiver | undefined {
    const reader = this.#readerOf(kind);
    if (kind === 'events' && reader === undefined) {
      this.#refuseEvents(bytes ?? NO_BYTES);
      return undefined;
    }
    if (reader === undefined) {
      this.#source.unusable(`content-type ${this.#type || 'missing'}`);
      return undefined;
    }
    this.#source.reads(reader);
    if (reader !== this.#relay) this.#relay?.dispose();
    if (bytes !== undefined) reader.data(bytes);
    return reader;
  }

  /** A stream that was not asked for. An error in it is one all the same; else the upstream did the work. */
  #refuseEvents(bytes: Buffer): void {
    const text = bytes.toString('utf8', firstByte(bytes));
    if (!EVENTS.some((field) => text.startsWith(field)))
      this.#source.unusable(`content-type ${this.#type || 'missing'}`);
    else if (!isErrorEvent(text))
      this.#source.unrelayable('The upstream answered with a stream that was not asked for.');
    else this.#source.finish({ kind: 'failed', failure: judgeErrorObject(text, this.#headers) });
  }

  #readerOf(kind: Kind): Receiver | undefined {
    if (kind !== this.#label && kind !== 'unknown') this.#source.expects(kind !== 'json');
    const headers = this.#headers;
    switch (kind) {
      case 'events':
        if (!this.#request.stream) return undefined;
        return this.#relay ?? new StreamRelay(this.#request, headers, this.#source);
      case 'json': {
        const Reader = this.#request.endpoint.isEmbeddings === true ? EmbeddingsRelay : JsonAnswer;
        return new Reader(this.#request, headers, this.#source, this.#label === 'json');
      }
      case 'bytes': {
        // With its parameters: of raw sound they say how fast it is.
        const { 'content-type': full } = headers;
        return new BytesRelay(
          this.#request,
          typeof full === 'string' ? full : this.#type,
          headers,
          this.#source,
        );
      }
      default:
        return undefined;
    }
  }
}

/** Where the text begins, behind white space and a byte order mark; the length where there is none. */
function firstByte(bytes: Buffer): number {
  let at = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  while (at < bytes.length && (bytes[at] ?? 0) <= SPACE) at += 1;
  return at;
}

/** What was not asked for as a stream is told from an error by a whole event. */
function hasWholeEvent(bytes: Buffer): boolean {
  return /(?:^|[\r\n])data:[\s\S]*?(?:\n\r?\n|\r\r)/.test(bytes.toString('latin1'));
}
