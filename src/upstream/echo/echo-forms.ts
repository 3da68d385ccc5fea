// Form endpoints of the echo upstream: reads forms incrementally, keeps short fields and counts file sizes.
import { GatewayError } from '../../errors.ts';
import {
  MultipartParser,
  type PartListener,
  type PartPosition,
} from '../../http/multipart/multipart-parser.ts';
import { boundaryOf, type PartHead } from '../../http/multipart/part-head.ts';
import { isSource } from '../../http/pieces/body-source.ts';
import type { UpstreamRequest } from '../transport.ts';
import { draw } from './echo-others.ts';
import {
  dataEvent,
  type EchoBody,
  type EchoError,
  type EchoEvent,
  echoError,
  echoErrorAnswer,
  eventFrame,
  jsonAnswer,
  streamAnswer,
} from './echo-shapes.ts';

const MAX_FIELD = 64 * 1024;
/** Bytes per second of audio at 128 kbit/s. */
const BYTES_PER_SECOND = 16_000;

interface ReadForm {
  readonly fields: ReadonlyMap<string, string>;
  /** File sizes in bytes. */
  readonly files: readonly number[];
}

type Respond = (form: ReadForm, model: string, created: number) => EchoEvent[] | EchoError;

const FORMS: ReadonlyMap<string, readonly [respond: Respond, defaultModel?: string]> = new Map([
  ['/audio/transcriptions', [transcribe]],
  ['/audio/translations', [transcribe]],
  ['/images/edits', [edit, 'dall-e-2']],
  ['/images/variations', [vary, 'dall-e-2']],
]);

/** Whether the request is a form that the echo upstream answers. */
export function isEchoForm(path: string, request: UpstreamRequest): boolean {
  return FORMS.has(path) && request.headers['content-type']?.startsWith('multipart/form-data') === true;
}

/**
 * Reads the complete form and answers it.
 * @throws GatewayError if the rest of the form does not arrive
 */
export async function answerForm(
  path: string,
  request: UpstreamRequest,
  created: number,
): Promise<EchoEvent[]> {
  const [respond, defaultModel] = FORMS.get(path) ?? [];
  const reader = new FormReader();
  try {
    const parser = new MultipartParser(boundaryOf(request.headers['content-type'] ?? ''), reader);
    if (isSource(request.body)) {
      const body = request.body.open();
      for (let piece = await body.next(); piece !== undefined; piece = await body.next()) parser.push(piece);
    } else parser.push(request.body);
    parser.end();
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== 'invalid_form' || isSource(request.body))
      throw error;
    return echoErrorAnswer(echoError(error.message, null, null));
  }
  const model = reader.fields.get('model') ?? defaultModel;
  if (respond === undefined || model === undefined)
    return echoErrorAnswer(echoError('You must provide a model parameter.', 'model', null));
  if (reader.files.length === 0) return echoErrorAnswer(echoError('The form has no file.', 'file', null));
  const answer = respond(reader, model, created);
  return Array.isArray(answer) ? answer : echoErrorAnswer(answer);
}

class FormReader implements PartListener, ReadForm {
  readonly fields = new Map<string, string>();
  readonly files: number[] = [];
  #head: PartHead | undefined;
  #pieces: Buffer[] = [];
  #size = 0;

  onPart(head: PartHead): boolean {
    this.#head = head;
    this.#pieces = [];
    this.#size = 0;
    return !head.isFile;
  }

  onContent(bytes: Buffer): void {
    this.#size += bytes.length;
    if (this.#size <= MAX_FIELD) this.#pieces.push(Buffer.from(bytes));
  }

  onPartEnd({ contentStart, contentEnd }: PartPosition): void {
    if (this.#head?.isFile === true) this.files.push(contentEnd - contentStart);
    else this.fields.set(this.#head?.name ?? '', Buffer.concat(this.#pieces).toString());
  }

  onClose(): void {}
}

function transcribe({ fields, files }: ReadForm): EchoEvent[] | EchoError {
  const [size = 0] = files;
  const seconds = Math.ceil(size / BYTES_PER_SECOND);
  const text = `A recording of ${size} bytes.`;
  const usage = { type: 'duration', seconds };
  if (fields.get('stream') === 'true') {
    return streamAnswer([
      eventFrame({ type: 'transcript.text.delta', delta: text }),
      eventFrame({ type: 'transcript.text.done', text, usage }),
    ]);
  }
  const end = `00:00:${String(Math.min(seconds, 59)).padStart(2, '0')}`;
  switch (fields.get('response_format') ?? 'json') {
    case 'json':
      return jsonAnswer(200, { text, usage });
    case 'verbose_json': {
      const segment = { id: 0, start: 0, end: seconds, text };
      const facts = { task: 'transcribe', language: 'english', duration: seconds };
      return jsonAnswer(200, { ...facts, text, segments: [segment], usage });
    }
    case 'text':
      return textAnswer('text/plain; charset=utf-8', `${text}\n`);
    case 'srt':
      return textAnswer('text/plain; charset=utf-8', `1\n00:00:00,000 --> ${end},000\n${text}\n\n`);
    case 'vtt':
      return textAnswer('text/vtt; charset=utf-8', `WEBVTT\n\n00:00:00.000 --> ${end}.000\n${text}\n\n`);
    default:
      return echoError("Invalid value for 'response_format'.", 'response_format', 'invalid_value');
  }
}

function edit(form: ReadForm, model: string, created: number): EchoEvent[] | EchoError {
  return draw(bodyOf(form, model), created, 'image_edit');
}

function vary(form: ReadForm, model: string, created: number): EchoEvent[] | EchoError {
  const { members, ...body } = bodyOf(form, model);
  return draw({ ...body, members: { prompt: 'a variation', ...members, stream: false } }, created);
}

/** The form as an equivalent JSON body. */
function bodyOf({ fields }: ReadForm, model: string): EchoBody {
  const members: Record<string, unknown> = Object.fromEntries(fields);
  return {
    kind: 'body',
    model,
    members: { ...members, n: Number(fields.get('n') ?? 1), stream: fields.get('stream') === 'true' },
  };
}

function textAnswer(type: string, text: string): EchoEvent[] {
  return [{ kind: 'head', status: 200, headers: { 'content-type': type } }, dataEvent(text)];
}
