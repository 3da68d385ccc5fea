// The endpoints whose answers are images or speech, and what is assumed and counted of them.
import type { CompletionFacts } from '../../wire/chat-chunk.ts';
import type { Span } from '../../wire/json/json.ts';
import { NO_USAGE, type Quantities } from '../../wire/token-usage.ts';
import type { Endpoint } from '../contracts/endpoint.ts';
import { wants } from '../request/request-members.ts';
import { textAt } from '../request/request-scan.ts';
import { SpeechEvents } from './byte-events.ts';
import { imageEvents, speechEvents } from './event-conversion.ts';
import { type EventKind, EventReader } from './typed-events.ts';

/** Assumed for an image without usage: about a square one of medium quality. */
const IMAGE_TOKENS = 1000;

/** Bounds the estimate: no request makes more images. */
const MAX_IMAGES = 10_000;

/** Longest text for speech in bytes; vendors accept some thousand characters. */
const MAX_INPUT = 64 * 1024;

/** `POST /v1/images/generations` */
export const IMAGES: Endpoint = {
  name: 'images',
  path: 'images/generations',
  wanted: wants([], 'dall-e-2'),
  namesObjects: true,
  readFacts: (_, scan) => {
    const prompt = scan.inputTokens;
    const completion = tokensOfImages(scan.choices);
    return {
      stream: scan.stream,
      estimate: { prompt, completion, isBounded: false },
      outputs: completion,
      quantities: imageQuantities(scan.choices),
    };
  },
  frames: () => new EventReader(mediaEvent),
  measures: 'images',
  asStream: imageEvents('image_generation'),
};

/** `POST /v1/audio/speech` */
export const SPEECH: Endpoint = {
  name: 'audio',
  path: 'audio/speech',
  accept: 'application/octet-stream, audio/*',
  wanted: wants(['input', 'stream_format']),
  readFacts: (body, scan) => {
    // Speech not sold by tokens is sold by characters, which cannot be derived from the sound.
    const characters = charactersOf(body, scan.others.get('input'));
    const prompt = characters;
    return {
      stream: textAt(body, scan.others.get('stream_format')) === 'sse',
      estimate: { prompt, completion: 0, isBounded: true },
      usage: { ...NO_USAGE, prompt, total: prompt, measured: { characters } },
      quantities: { requests: 1, characters },
    };
  },
  frames: () => new EventReader(mediaEvent),
  // Without a stream, JSON can only be an error.
  factsOf: onlyErrors,
  asStream: speechEvents,
  bytesAsStream: () => new SpeechEvents(),
  isBinary: (type) => type.startsWith('audio/') || type === 'application/octet-stream',
};

/** The output tokens of this many images. */
export function tokensOfImages(count: number): number {
  return IMAGE_TOKENS * Math.min(count, MAX_IMAGES);
}

/** What a request for this many images asks for beside tokens. */
export function imageQuantities(count: number): Quantities {
  return { requests: 1, images: Math.min(count, MAX_IMAGES) };
}

/** Kinds of image and speech events: pieces, and one complete event per item. */
export function mediaEvent(type: string): EventKind {
  if (/\.(completed|done)$/.test(type)) return 'last';
  if (type.endsWith('.failed')) return 'failed';
  return /\.(delta|partial_image)$/.test(type) ? 'output' : 'news';
}

/**
 * The characters of a text. For one far too long, and for what may hold it instead of a text, the bytes, which are at least as many: some
 * upstreams read a list, or another member.
 */
function charactersOf(body: Buffer, span: Span | undefined): number {
  const bytes = span === undefined ? body.length : span.end - span.start;
  const text = bytes > MAX_INPUT ? undefined : textAt(body, span);
  if (text === undefined) return bytes;
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

function onlyErrors(facts: CompletionFacts): CompletionFacts {
  return facts.isError ? facts : { ...facts, valid: false };
}
