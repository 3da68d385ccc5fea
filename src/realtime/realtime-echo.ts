// The built-in model in a realtime session: an in-process upstream for trials and tests. It answers with the last text in the events of
// OpenAI's API, and stores nothing.
import { randomBytes } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { contentText, echoTokens, replyTo } from '../upstream/echo/echo-answer.ts';
import { memberOf, parse } from '../wire/error-answer.ts';
import { closeFrame, pongFrame, textFrame, WebSocketFrameReader } from './websocket/websocket-frames.ts';

export class EchoSession {
  readonly #connection: Duplex;
  readonly #session: object;
  #said = '';
  /** Of the client, since the last answer. */
  #inputTokens = 0;

  /** @param connection the server's end of a connection */
  constructor(connection: Duplex, model: string) {
    this.#connection = connection;
    this.#session = { type: 'realtime', object: 'realtime.session', model, output_modalities: ['text'] };
  }

  /** Call after the handshake. */
  begin(): void {
    const reader = new WebSocketFrameReader({
      onText: (text) => this.#onMessage(text.toString()),
      onPing: (payload) => this.#connection.write(pongFrame(payload)),
      onClose: (code) => this.#connection.end(closeFrame(code, '', false)),
    });
    this.#connection.on('error', () => undefined);
    this.#connection.on('data', (bytes: Buffer) => reader.push(bytes));
    this.#connection.on('drain', () => this.#connection.resume());
    this.#connection.once('end', () => this.#connection.end());
    this.#send({ type: 'session.created', session: this.#session });
  }

  #onMessage(text: string): void {
    const event = parse(text);
    this.#inputTokens += echoTokens(text);
    switch (memberOf(event, 'type')) {
      case 'session.update':
        this.#send({ type: 'session.updated', session: this.#session });
        break;
      case 'conversation.item.create': {
        const item = memberOf(event, 'item');
        this.#said = contentText(memberOf(item, 'content')) ?? '';
        this.#send({ type: 'conversation.item.added', item });
        break;
      }
      case 'response.create':
        this.#respond();
        break;
      default: {
        const message = 'This model supports session.update, conversation.item.create and response.create.';
        const error = { type: 'invalid_request_error', code: 'invalid_event', message, param: null };
        this.#send({ type: 'error', error });
      }
    }
  }

  #respond(): void {
    const id = `resp_${randomBytes(12).toString('hex')}`;
    const about = { response_id: id, item_id: `item_${id}`, output_index: 0, content_index: 0 };
    const { text, pieces } = replyTo(this.#said, {});
    const response = { id, object: 'realtime.response', status: 'in_progress', output: [], usage: null };
    this.#send({ type: 'response.created', response });
    for (const delta of pieces) this.#send({ type: 'response.output_text.delta', ...about, delta });
    this.#send({ type: 'response.output_text.done', ...about, text });
    const input = this.#inputTokens;
    this.#inputTokens = 0;
    const usage = {
      total_tokens: input + pieces.length,
      input_tokens: input,
      output_tokens: pieces.length,
      input_token_details: { cached_tokens: 0, text_tokens: input, audio_tokens: 0 },
      output_token_details: { text_tokens: pieces.length, audio_tokens: 0 },
    };
    const item = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] };
    const done = { ...response, status: 'completed', output: [item], usage };
    this.#send({ type: 'response.done', response: done });
  }

  #send(event: object): void {
    const text = JSON.stringify({ event_id: `event_${randomBytes(8).toString('hex')}`, ...event });
    // Backpressure: a client that does not read is not read either.
    if (!this.#connection.writableEnded && !this.#connection.write(textFrame(text))) this.#connection.pause();
  }
}
