// Conversion of JSON answers to streams of typed events (images, speech, transcripts), without invented values. chat-conversion.ts
// converts chat, response-events.ts responses, and byte-events.ts byte answers.
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { JsonScanner } from '../../wire/json/json.ts';
import {
  elementsOf,
  type Json,
  type JsonMember,
  literal,
  membersOf,
  objectOf,
  oneLine,
} from '../../wire/json/json-pieces.ts';

const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;
/** Members of an images answer that each event repeats. `created` is renamed in events. */
const IMAGE_MEMBERS = ['background', 'output_format', 'quality', 'size'] as const;
/** Members in which servers put sound. */
const SOUND_MEMBERS = ['audio', 'data', 'b64_json', 'audio_base64', 'audio_content', 'audioContent'] as const;
const BASE64 = /^[\w+/-]+={0,2}$/;
/** Characters checked to recognize base64. */
const SAMPLE = 64;

/** Builds the events of one stream. */
export class EventList {
  readonly #pieces: Buffer[] = [];
  readonly #isOneLine: boolean;
  readonly #isNamed: boolean;
  #size = 0;

  /**
   * @param hasLineBreaks the input has line breaks between tokens
   * @param isNamed events also have an `event:` field
   */
  constructor(hasLineBreaks: boolean, isNamed = true) {
    this.#isOneLine = !hasLineBreaks;
    this.#isNamed = isNamed;
  }

  add(type: string, members: Iterable<JsonMember>): void {
    const data = objectOf([['type', literal(type)], ...members]);
    const start = this.#isNamed ? `event: ${type}\ndata: ` : 'data: ';
    const lines = [Buffer.from(start), ...(this.#isOneLine ? data : oneLine(data))];
    for (const piece of [...lines, Buffer.from('\n\n')]) {
      this.#pieces.push(piece);
      this.#size += piece.length;
    }
  }

  get bytes(): Buffer | BodyPieces {
    return this.#size > LARGE_BODY ? new BodyPieces(this.#pieces) : Buffer.concat(this.#pieces);
  }
}

/**
 * A `completed` event for each image. The last event holds the usage of all, so that neither adding events up nor reading only
 * the last one counts it twice.
 * @param name of the events, up to the dot
 * @returns undefined where there is no image
 */
export function imageEvents(name: string): (body: Buffer) => Buffer | BodyPieces | undefined {
  return (body) => {
    const scanner = new JsonScanner();
    const answer = membersOf([body], scanner);
    const images = elementsOf(answer.get('data')).map((image) => membersOf(image));
    const isImage = (image: Map<string, Json>) =>
      isTextValue(image.get('b64_json')) || isTextValue(image.get('url'));
    if (images.length === 0 || !images.every(isImage)) return undefined;
    const events = new EventList(scanner.sawLineBreak);
    const common = [
      ...presentMember(answer, 'created').map(([, created]): JsonMember => ['created_at', created]),
      ...IMAGE_MEMBERS.flatMap((member) => presentMember(answer, member)),
    ];
    for (const [index, image] of images.entries()) {
      const usage = index === images.length - 1 ? usageOf(answer) : [];
      events.add(`${name}.completed`, new Map([...common, ...image, ...usage]));
    }
    return events.bytes;
  };
}

/** @returns undefined where there is no sound in it */
export function speechEvents(body: Buffer): Buffer | BodyPieces | undefined {
  const scanner = new JsonScanner();
  const answer = membersOf([body], scanner);
  const inner = membersOf(answer.get('audio') ?? []);
  const sound = [...SOUND_MEMBERS.map((name) => answer.get(name)), inner.get('data')].find(isBase64);
  if (sound === undefined) return undefined;
  const events = new EventList(scanner.sawLineBreak);
  events.add('speech.audio.delta', [['audio', sound]]);
  events.add('speech.audio.done', usageOf(answer));
  return events.bytes;
}

/** Some models ignore `stream` for transcripts. @returns undefined where there is no text */
export function transcriptEvents(body: Buffer): Buffer | BodyPieces | undefined {
  const scanner = new JsonScanner();
  const answer = membersOf([body], scanner);
  const text = answer.get('text');
  if (!isTextValue(text, true)) return undefined;
  // The API names transcript events only in their data.
  const events = new EventList(scanner.sawLineBreak, false);
  if (isTextValue(text)) events.add('transcript.text.delta', [['delta', text]]);
  events.add('transcript.text.done', [['text', text], ...usageOf(answer)]);
  return events.bytes;
}

/** The member, if present. */
export function presentMember(members: ReadonlyMap<string, Json>, name: string): JsonMember[] {
  const value = members.get(name);
  return value === undefined ? [] : [[name, value]];
}

/** Whether the value is a string. @param mayBeEmpty default false */
export function isTextValue(json: Json | undefined, mayBeEmpty = false): json is Json {
  const [bytes] = json ?? [];
  return bytes !== undefined && bytes[0] === QUOTE && (mayBeEmpty || bytes.length > 2);
}

function isBase64(json: Json | undefined): json is Json {
  if (!isTextValue(json)) return false;
  const [bytes] = json;
  const sample = bytes?.toString('latin1', 1, Math.min(bytes.length - 1, SAMPLE)) ?? '';
  // Slashes may be escaped.
  return BASE64.test(sample.replaceAll('\\', ''));
}

function usageOf(members: ReadonlyMap<string, Json>): JsonMember[] {
  return presentMember(members, 'usage').filter(([, [first]]) => first?.[0] === OPEN_OBJECT);
}
