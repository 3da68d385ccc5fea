// The endpoints that take a form with files, and the list of all endpoints with a model in their body. json-endpoints.ts has those
// that take JSON.
import { SOUND_TOKEN_MS } from '../../wire/token-usage.ts';
import type { Endpoint, FormRules, FormView, RequestFacts } from '../contracts/endpoint.ts';
import { ATTACHMENT_TOKENS, MEDIA_CHARACTERS_PER_TOKEN } from '../request/attachments.ts';
import { choicesOf } from '../request/request-counts.ts';
import { wants } from '../request/request-members.ts';
import { ANSWER_TOKENS, tokensOf } from '../request/token-estimate.ts';
import { TranscriptEvents } from './byte-events.ts';
import { imageEvents, transcriptEvents } from './event-conversion.ts';
import { JSON_ENDPOINTS } from './json-endpoints.ts';
import { IMAGES, imageQuantities, mediaEvent, tokensOfImages } from './media-endpoints.ts';
import { EventReader } from './typed-events.ts';

/** A tenth of a second of sound at 128 kbit/s, which is about one token. */
const BYTES_PER_TOKEN = 1_600;
/** Some servers label subtitles with their own types. */
const TEXT_TYPES: ReadonlySet<string> = new Set([
  'text/plain',
  'text/vtt',
  'text/srt',
  'application/x-subrip',
]);

const SOUND: FormRules = {
  fields: ['response_format'],
  readFacts: (form) => ({
    stream: form.text('stream') === 'true',
    takesText: /^(text|srt|vtt)$/.test(form.text('response_format') ?? ''),
    estimate: {
      prompt: Math.ceil((form.bytes - form.textBytes) / BYTES_PER_TOKEN) + tokensOf(form.textBytes),
      completion: ANSWER_TOKENS,
      isBounded: false,
    },
    quantities: {
      requests: 1,
      milliseconds: Math.ceil(((form.bytes - form.textBytes) / BYTES_PER_TOKEN) * SOUND_TOKEN_MS),
    },
  }),
};

/** `POST /v1/audio/transcriptions` */
const TRANSCRIPTIONS: Endpoint = {
  name: 'audio',
  path: 'audio/transcriptions',
  accept: 'application/json, text/plain',
  wanted: wants([]),
  readFacts: () => NO_JSON,
  form: SOUND,
  frames: () => new EventReader((type) => (type === 'transcript.text.segment' ? 'output' : mediaEvent(type))),
  measures: 'sound',
  asStream: transcriptEvents,
  bytesAsStream: () => new TranscriptEvents(),
  isBinary: (type, facts) => facts.takesText === true && TEXT_TYPES.has(type),
};

/** `POST /v1/audio/translations` */
const TRANSLATIONS: Endpoint = { ...TRANSCRIPTIONS, path: 'audio/translations' };

const PICTURES: FormRules = {
  defaultModel: 'dall-e-2',
  fields: ['n'],
  readFacts: imageFacts,
  check: checkImages,
};

/** `POST /v1/images/edits` */
const IMAGE_EDITS: Endpoint = {
  ...IMAGES,
  path: 'images/edits',
  asStream: imageEvents('image_edit'),
  form: { ...PICTURES, isEither: true },
};

/** `POST /v1/images/variations` */
const IMAGE_VARIATIONS: Endpoint = { ...IMAGES, path: 'images/variations', form: PICTURES };

const FORM_ENDPOINTS: readonly Endpoint[] = [TRANSCRIPTIONS, TRANSLATIONS, IMAGE_EDITS, IMAGE_VARIATIONS];

export const MODEL_ENDPOINTS: readonly Endpoint[] = [...JSON_ENDPOINTS, ...FORM_ENDPOINTS];

/** For endpoints that take no JSON; never used. */
const NO_JSON: RequestFacts = { stream: false, estimate: { prompt: 0, completion: 0, isBounded: false } };

function checkImages(name: string, text: string): void {
  if (name === 'n') choicesOf(text);
}

function imageFacts(form: FormView): RequestFacts {
  const count = choicesOf(form.text('n') ?? '');
  const completion = tokensOfImages(count);
  return {
    stream: form.text('stream') === 'true',
    estimate: { prompt: tokensOfFiles(form) + tokensOf(form.textBytes), completion, isBounded: false },
    outputs: completion,
    quantities: imageQuantities(count),
  };
}

/** As for JSON attachments, which are in base64 and so a third longer. */
function tokensOfFiles({ files, bytes, textBytes }: FormView): number {
  const length = ((bytes - textBytes) * 4) / 3;
  return Math.max(ATTACHMENT_TOKENS * Math.max(1, files), Math.ceil(length / MEDIA_CHARACTERS_PER_TOKEN));
}
