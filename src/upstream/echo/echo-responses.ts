// The Responses API of the echo upstream, with its last responses in memory.
import { randomBytes } from 'node:crypto';
import { RecentMap } from '../../recent-map.ts';
import { memberOf } from '../../wire/error-answer.ts';
import type { UpstreamRequest } from '../transport.ts';
import {
  contentText,
  type EchoAnswer,
  EchoFault,
  type EchoRequest,
  echoTokens,
  jsonAnswer,
  replyTo,
  type StreamEvent,
  streamAnswer,
} from './echo-answer.ts';

const MAX_RESPONSES = 100;
const PATH = /^\/responses\/([A-Za-z0-9_]+)(\/cancel|\/input_items)?$/;

interface StoredResponse {
  readonly whole: object;
  readonly events: readonly StreamEvent[];
  readonly input: string;
}

export class EchoResponses {
  readonly #stored = new RecentMap<string, StoredResponse>(MAX_RESPONSES);

  /** @throws EchoFault */
  create({ model, members, created }: EchoRequest): EchoAnswer {
    const prompt = lastInput(members['input']);
    if (prompt === undefined) throw new EchoFault("Missing required parameter: 'input'.", 'input');
    const previous = members['previous_response_id'] ?? null;
    if (previous !== null && !this.#stored.has(String(previous))) {
      const message = 'The previous response was not found.';
      throw new EchoFault(message, 'previous_response_id', 'previous_response_not_found');
    }
    const { pieces, text, isCut } = replyTo(prompt, members, 'max_output_tokens');
    const status = isCut ? 'incomplete' : 'completed';
    const [id, item_id] = ['resp', 'msg'].map((kind) => `${kind}_${randomBytes(12).toString('hex')}`);
    const isStored = members['store'] !== false;
    const part = (written: string) => ({
      type: 'output_text',
      text: written,
      annotations: [],
      logprobs: [],
    });
    const item = (state: string, ...content: readonly object[]) => ({
      id: item_id,
      type: 'message',
      status: state,
      role: 'assistant',
      content,
    });
    const [input, output] = [echoTokens(prompt), pieces.length];
    const usage = {
      input_tokens: input,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: output,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: input + output,
    };
    const response = (state: string, items: readonly object[], used: object | null) => ({
      id,
      object: 'response',
      created_at: created,
      status: state,
      error: null,
      incomplete_details: state === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions: null,
      metadata: {},
      model,
      output: items,
      parallel_tool_calls: true,
      previous_response_id: previous,
      store: isStored,
      temperature: 1,
      tool_choice: 'auto',
      tools: [],
      top_p: 1,
      usage: used,
    });
    const whole = response(status, [item(status, part(text))], usage);
    const begun = response('in_progress', [], null);
    const position = { item_id, output_index: 0, content_index: 0 };
    const events = [
      { type: 'response.created', response: begun },
      { type: 'response.in_progress', response: begun },
      { type: 'response.output_item.added', output_index: 0, item: item('in_progress') },
      { type: 'response.content_part.added', ...position, part: part('') },
      ...pieces.map((delta) => ({ type: 'response.output_text.delta', ...position, delta, logprobs: [] })),
      { type: 'response.output_text.done', ...position, text, logprobs: [] },
      { type: 'response.content_part.done', ...position, part: part(text) },
      { type: 'response.output_item.done', output_index: 0, item: item(status, part(text)) },
      { type: `response.${status}`, response: whole },
    ].map((event, index) => ({ ...event, sequence_number: index }));
    if (isStored) this.#stored.set(String(id), { whole, events, input: prompt });
    return members['stream'] === true ? streamAnswer(events) : jsonAnswer(whole);
  }

  /** Answers a request for a stored response. @returns undefined if the path is not of one @throws EchoFault */
  answer({ method = 'POST', path }: Pick<UpstreamRequest, 'method' | 'path'>): EchoAnswer | undefined {
    const [plain = '', query = ''] = path.split('?', 2);
    const [, id, operation] = PATH.exec(plain) ?? [];
    if (id === undefined) return undefined;
    const stored = this.#stored.get(id);
    if (stored === undefined) throw new EchoFault(`Response with id '${id}' not found.`, null, null, 404);
    if (operation === '/input_items') return jsonAnswer(itemsOf(stored.input));
    if (method === 'DELETE') {
      this.#stored.delete(id);
      return jsonAnswer({ id, object: 'response', deleted: true });
    }
    const parameters = new URLSearchParams(query);
    if (method === 'POST' || parameters.get('stream') !== 'true') return jsonAnswer(stored.whole);
    const after = Number(parameters.get('starting_after') ?? -1);
    return streamAnswer(stored.events.filter((_, index) => !(index <= after)));
  }
}

/** The input text, or the text of the last user message. */
function lastInput(input: unknown): string | undefined {
  if (typeof input === 'string') return input;
  if (!Array.isArray(input)) return undefined;
  const last: unknown = input.findLast((item: unknown) => memberOf(item, 'role') === 'user');
  return last === undefined ? undefined : contentText(memberOf(last, 'content'));
}

function itemsOf(text: string): object {
  const content = [{ type: 'input_text', text }];
  const data = [{ id: 'msg_0', type: 'message', role: 'user', status: 'completed', content }];
  return { object: 'list', data, first_id: 'msg_0', last_id: 'msg_0', has_more: false };
}
