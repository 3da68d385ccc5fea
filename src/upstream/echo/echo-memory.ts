// In-memory store of the echo upstream's last responses.
import { RecentMap } from '../../recent-map.ts';
import type { UpstreamRequest } from '../transport.ts';
import {
  type EchoEvent,
  echoErrorAnswer,
  eventFrame,
  jsonAnswer,
  type StreamEvent,
  streamAnswer,
} from './echo-shapes.ts';

const MAX_RESPONSES = 100;
const PATH = /^\/responses\/([A-Za-z0-9_]+)(\/cancel|\/input_items)?$/;

interface StoredResponse {
  readonly whole: object;
  readonly events: readonly StreamEvent[];
  readonly input: string;
}

export class EchoMemory {
  readonly #responses = new RecentMap<string, StoredResponse>(MAX_RESPONSES);

  add(id: string, response: StoredResponse): void {
    this.#responses.set(id, response);
  }

  has(id: unknown): boolean {
    return typeof id === 'string' && this.#responses.has(id);
  }

  /** @returns undefined if the path is not of a stored response */
  answer({ method = 'POST', path }: Pick<UpstreamRequest, 'method' | 'path'>): EchoEvent[] | undefined {
    const [plain = '', query = ''] = path.split('?', 2);
    const [, id = '', operation = ''] = PATH.exec(plain) ?? [];
    if (id === '') return undefined;
    const stored = this.#responses.get(id);
    if (stored === undefined) {
      const message = `Response with id '${id}' not found.`;
      return echoErrorAnswer({ kind: 'echo_error', message, param: null, code: null }, 404);
    }
    if (operation === '/input_items') return jsonAnswer(200, itemsOf(stored.input));
    if (method === 'DELETE') {
      this.#responses.delete(id);
      return jsonAnswer(200, { id, object: 'response', deleted: true });
    }
    const parameters = new URLSearchParams(query);
    if (method === 'POST' || parameters.get('stream') !== 'true') return jsonAnswer(200, stored.whole);
    const after = Number(parameters.get('starting_after') ?? -1);
    return streamAnswer(stored.events.filter((_, index) => !(index <= after)).map(eventFrame));
  }
}

function itemsOf(text: string): object {
  const content = [{ type: 'input_text', text }];
  const data = [{ id: 'msg_0', type: 'message', role: 'user', status: 'completed', content }];
  return { object: 'list', data, first_id: 'msg_0', last_id: 'msg_0', has_more: false };
}
