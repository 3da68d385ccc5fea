// A scripted server of Anthropic's API for the comparison: it chooses its answer by the prompt of the call, and keeps what it was sent.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import {
  blockStart,
  blockStop,
  delta,
  ERROR_OF,
  errorEvent,
  MESSAGE_STOP,
  message,
  messageDelta,
  messageStart,
  messageStream,
  PING,
  textDelta,
} from '../../../helpers/messages.ts';
import { promptOf } from '../types.ts';

export const MODEL = 'claude-compared';

/** What a client sent, but for its key and its connection. */
export interface SentMessage {
  readonly target: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}

export interface MessagesServer {
  /** The URL without a path. */
  readonly url: string;
  /** In order of arrival; without those for models, which the gateway answers itself. */
  readonly sent: readonly SentMessage[];
  close(): Promise<void>;
}

const TOOL_USE = { type: 'tool_use', id: 'toolu_01scripted', name: 'Bash', input: {} };
const INPUT = '{"command":"echo from-tool","description":"Say a word"}';
/** A tool call behind a text, in pieces. */
const toolStream = (): string[] => [
  messageStart(),
  blockStart(),
  textDelta('I look.'),
  blockStop(),
  blockStart(TOOL_USE, 1),
  delta({ type: 'input_json_delta', partial_json: '' }, 1),
  ...[INPUT.slice(0, 9), INPUT.slice(9)].map((partial_json) =>
    delta({ type: 'input_json_delta', partial_json }, 1),
  ),
  blockStop(1),
  messageDelta('tool_use'),
  MESSAGE_STOP,
];
const thinkingStream = (): string[] => [
  messageStart(),
  blockStart({ type: 'thinking', thinking: '', signature: '' }),
  delta({ type: 'thinking_delta', thinking: 'Hm. ' }),
  PING,
  delta({ type: 'signature_delta', signature: 'EqQBCgIYAhIM' }),
  blockStop(),
  blockStart(undefined, 1),
  textDelta('So.', 1),
  blockStop(1),
  messageDelta('end_turn', { output_tokens: 15, output_tokens_details: { thinking_tokens: 9 } }),
  MESSAGE_STOP,
];
const broken = [messageStart(), blockStart(), textDelta('Hel')];
const ENTRY = { type: 'model', id: MODEL, display_name: MODEL, created_at: '2024-01-01T00:00:00.000Z' };

export async function startMessagesServer(): Promise<MessagesServer> {
  const sent: SentMessage[] = [];
  let failures = 0;
  const frames = async (response: ServerResponse, all: readonly string[], isWhole = true): Promise<void> => {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'request-id': 'req_theirs',
    });
    for (const each of all) {
      if (!response.write(each.replaceAll('upstream-model', MODEL))) await once(response, 'drain');
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    if (isWhole) response.end();
    else response.destroy();
  };
  const json = (response: ServerResponse, status: number, body: object, headers: object = {}): void => {
    response
      .writeHead(status, { 'content-type': 'application/json', 'request-id': 'req_theirs', ...headers })
      .end(JSON.stringify(body));
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await text(request);
    const target = request.url ?? '';
    if (target.startsWith('/v1/models/')) json(response, 200, ENTRY);
    else if (target.startsWith('/v1/models'))
      json(response, 200, { data: [ENTRY], has_more: false, first_id: MODEL, last_id: MODEL });
    else if (!target.startsWith('/v1/messages')) response.writeHead(404).end();
    else {
      const { 'anthropic-version': version, 'anthropic-beta': beta } = request.headers;
      sent.push({ target, headers: { version, beta }, body });
      const { stream, messages = [] } = JSON.parse(body);
      const asked = (call: string): boolean => JSON.stringify(messages).includes(`${promptOf(call)}"`);
      if (target.includes('count_tokens')) json(response, 200, { input_tokens: 14 });
      else if (asked('error.bad_request')) json(response, 400, ERROR_OF('invalid_request_error'));
      else if (asked('error.too_large')) json(response, 413, ERROR_OF('request_too_large'));
      else if (asked('error.overloaded')) json(response, 529, ERROR_OF('overloaded_error'));
      else if (asked('error.rate_limit'))
        json(response, 429, ERROR_OF('rate_limit_error'), { 'retry-after': '2' });
      else if (asked('error.once') && failures++ === 0)
        json(response, 529, ERROR_OF('overloaded_error'), { 'retry-after-ms': '1' });
      else if (asked('error.event')) await frames(response, [...broken, errorEvent()]);
      else if (asked('error.cut')) await frames(response, broken, false);
      else if (asked('error.end')) await frames(response, broken);
      else if (asked('abort')) {
        const closed = once(response, 'close');
        response
          .writeHead(200, { 'content-type': 'text/event-stream' })
          .write(broken.join('').replaceAll('upstream-model', MODEL));
        await closed;
      } else if (stream !== true) json(response, 200, message(undefined, { model: MODEL }));
      else if (asked('thinking')) await frames(response, thinkingStream());
      else if (asked('tools') && !body.includes('"tool_result"')) await frames(response, toolStream());
      else await frames(response, messageStream());
    }
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sent,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
