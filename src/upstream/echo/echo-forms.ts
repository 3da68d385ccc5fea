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
import {
  answerOf,
  type EchoAnswer,
  EchoFault,
  type EchoRequest,
  jsonAnswer,
  streamAnswer,
} from './echo-answer.ts';
import { draw } from './echo-others.ts';

const MAX_FIELD = 64 * 1024;
/** Bytes per second of audio at 128 kbit/s. */
const BYTES_PER_SECOND = 16_000;
const PLAIN_TEXT = 'text/plain; charset=utf-8';

/** @param size of the first file, in bytes */
type Respond = (form: EchoRequest, size: number) => EchoAnswer;

const FORMS: ReadonlyMap<string, readonly [respond: Respond, defaultModel?: string]> = new Map([
  ['/audio/transcriptions', [transcribe]],
  ['/audio/translations', [transcribe]],
  ['/images/edits', [(form: EchoRequest) => draw(form, 'image_edit'), 'dall-e-2']],
  ['/images/variations', [vary, 'dall-e-2']],
]);

/** Whether the request is a form that the echo upstream answers. */
export function isEchoForm(path: string, request: UpstreamRequest): boolean {
  return FORMS.has(path) && request.headers['content-type']?.startsWith('multipart/form-data') === true;
}

/** Reads the complete form and answers it. @throws EchoFault; GatewayError if the rest of the form does not arrive */
export async function answerForm(
  path: string,
  { headers, body }: UpstreamRequest,
  created: number,
): Promise<EchoAnswer> {
  const [respond, defaultModel] = FORMS.get(path) ?? [];
  const form = new FormReader();
  try {
    const parser = new MultipartParser(boundaryOf(headers['content-type'] ?? ''), form);
    if (isSource(body)) {
      const pieces = body.open();
      for (let piece = await pieces.next(); piece !== undefined; piece = await pieces.next())
        parser.push(piece);
    } else parser.push(body);
    parser.end();
  } catch (error) {
    if (!(error instanceof GatewayError) || error.code !== 'invalid_form' || isSource(body)) throw error;
    throw new EchoFault(error.message);
  }
  const { model = defaultModel, ...fields } = Object.fromEntries(form.fields);
  if (respond === undefined || model === undefined)
    throw new EchoFault('You must provide a model parameter.', 'model');
  const [size] = form.files;
  if (size === undefined) throw new EchoFault('The form has no file.', 'file');
  const members = { ...fields, n: Number(fields['n'] ?? 1), stream: fields['stream'] === 'true' };
  return respond({ model, members, created }, size);
}

class FormReader implements PartListener {
  readonly fields = new Map<string, string>();
  /** File sizes in bytes. */
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

function transcribe({ members }: EchoRequest, size: number): EchoAnswer {
  const seconds = Math.ceil(size / BYTES_PER_SECOND);
  const text = `A recording of ${size} bytes.`;
  const usage = { type: 'duration', seconds };
  if (members['stream'] === true) {
    return streamAnswer([
      { type: 'transcript.text.delta', delta: text },
      { type: 'transcript.text.done', text, usage },
    ]);
  }
  const end = `00:00:${String(Math.min(seconds, 59)).padStart(2, '0')}`;
  switch (members['response_format'] ?? 'json') {
    case 'json':
      return jsonAnswer({ text, usage });
    case 'verbose_json': {
      const segment = { id: 0, start: 0, end: seconds, text };
      const facts = { task: 'transcribe', language: 'english', duration: seconds };
      return jsonAnswer({ ...facts, text, segments: [segment], usage });
    }
    case 'text':
      return answerOf(PLAIN_TEXT, `${text}\n`);
    case 'srt':
      return answerOf(PLAIN_TEXT, `1\n00:00:00,000 --> ${end},000\n${text}\n\n`);
    case 'vtt':
      return answerOf('text/vtt; charset=utf-8', `WEBVTT\n\n00:00:00.000 --> ${end}.000\n${text}\n\n`);
    default:
      throw new EchoFault("Invalid value for 'response_format'.", 'response_format', 'invalid_value');
  }
}

function vary(form: EchoRequest): EchoAnswer {
  return draw({ ...form, members: { prompt: 'a variation', ...form.members, stream: false } });
}
