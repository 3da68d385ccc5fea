// The built-in model in a realtime session: a small upstream in the process, for trying and testing. It answers texts with what
// was said last, in the events that OpenAI's API has for that, and keeps nothing.
import { randomBytes } from 'node:crypto';
import { memberOf, parse } from '../upstream/error-outcome.ts';
import type { Line } from './client-line.ts';
import { closeFrame, pongFrame, textFrame, WebSocketFrameReader } from './websocket-frames.ts';

/** Of what is said back. */
const MAX_DURATION = 2000;

export class EchoSession {
  readonly #line: Line;
  readonly #model: string;
  #said = '';
  #sizeOfInput = 0;

  /** @param line the client's end; written to and read as an upstream's socket would be */
  constructor(line: Line, model: string) {
    this.#line = line;
    this.#model = model;
  }

  /** @param head of the answer to the handshake */
  begin(head: string): void {
    const reader = new WebSocketFrameReader({
      onText: (text) => this.#hear(text),
      onPing: (payload) => this.#line.write(pongFrame(payload)),
      onClose: (code) => {
        // 1005 stands in no frame (RFC 6455, 7.4.1).
        this.#line.end(closeFrame(code === 1005 ? 1000 : code, '', false));
      },
    });
    this.#line.on('data', (bytes: Buffer) => reader.push(bytes));
    this.#line.on('drain', () => this.#line.resume());
    this.#line.once('end', () => this.#line.end());
    this.#line.write(head);
    this.#tell({ type: 'session.created', session: this.#session() });
  }

  #hear(text: Buffer): void {
    const event = parse(text.toString());
    this.#sizeOfInput += text.length;
    switch (memberOf(event, 'type')) {
      case 'session.update':
        this.#tell({ type: 'session.updated', session: this.#session() });
        break;
      case 'conversation.item.create': {
        const item = memberOf(event, 'item');
        const content = memberOf(item, 'content');
        const parts: unknown[] = Array.isArray(content) ? content : [];
        this.#said = parts
          .map((part) => memberOf(part, 'text'))
          .filter((part) => typeof part === 'string')
          .join('')
          .slice(0, MAX_DURATION);
        this.#tell({ type: 'conversation.item.added', item });
        break;
      }
      case 'response.create':
        this.#respond();
        break;
      default: {
        const message = 'This model knows session.update, conversation.item.create and response.create.';
        const error = { type: 'invalid_request_error', code: 'invalid_event', message, param: null };
        this.#tell({ type: 'error', error });
      }
    }
  }

  #respond(): void {
    const id = `resp_${randomBytes(12).toString('hex')}`;
    const about = { response_id: id, item_id: `item_${id}`, output_index: 0, content_index: 0 };
    const text = this.#said === '' ? 'Say something, and I will say it back.' : `You said: ${this.#said}`;
    const pieces = text.match(/\s*\S{1,16}|\s+/gu) ?? [];
    const response = { id, object: 'realtime.response', status: 'in_progress', output: [], usage: null };
    this.#tell({ type: 'response.created', response });
    for (const delta of pieces) this.#tell({ type: 'response.output_text.delta', ...about, delta });
    this.#tell({ type: 'response.output_text.done', ...about, text });
    const input = Math.ceil(this.#sizeOfInput / 4);
    this.#sizeOfInput = 0;
    const usage = {
      total_tokens: input + pieces.length,
      input_tokens: input,
      output_tokens: pieces.length,
      input_token_details: { cached_tokens: 0, text_tokens: input, audio_tokens: 0 },
      output_token_details: { text_tokens: pieces.length, audio_tokens: 0 },
    };
    const item = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] };
    this.#tell({
      type: 'response.done',
      response: { ...response, status: 'completed', output: [item], usage },
    });
  }

  #session() {
    return { type: 'realtime', object: 'realtime.session', model: this.#model, output_modalities: ['text'] };
  }

  #tell(event: object): void {
    const text = JSON.stringify({ event_id: `event_${randomBytes(8).toString('hex')}`, ...event });
    // Who does not read is not listened to.
    if (!this.#line.writableEnded && !this.#line.write(textFrame(text))) this.#line.pause();
  }
}
