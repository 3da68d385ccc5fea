// The responses that the built-in model has stored: the last few, until the process ends.
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

const MOST = 100;
const PATH = /^\/responses\/([A-Za-z0-9_]+)(\/cancel|\/input_items)?$/;

interface Kept {
  readonly whole: object;
  readonly events: readonly StreamEvent[];
  readonly input: string;
}

export class EchoMemory {
  readonly #kept = new RecentMap<string, Kept>(MOST);

  keep(id: string, kept: Kept): void {
    this.#kept.set(id, kept);
  }

  has(id: unknown): boolean {
    return typeof id === 'string' && this.#kept.has(id);
  }

  /** @returns undefined where the path is none of a stored response */
  answer({ method = 'POST', path }: Pick<UpstreamRequest, 'method' | 'path'>): EchoEvent[] | undefined {
    const [plain = '', query = ''] = path.split('?', 2);
    const [, id = '', rest = ''] = PATH.exec(plain) ?? [];
    if (id === '') return undefined;
    const kept = this.#kept.get(id);
    if (kept === undefined) {
      const message = `Response with id '${id}' not found.`;
      return echoErrorAnswer({ kind: 'refusal', message, param: null, code: null }, 404);
    }
    if (rest === '/input_items') return jsonAnswer(200, itemsOf(kept.input));
    if (method === 'DELETE') {
      this.#kept.delete(id);
      return jsonAnswer(200, { id, object: 'response', deleted: true });
    }
    const asked = new URLSearchParams(query);
    if (method === 'POST' || asked.get('stream') !== 'true') return jsonAnswer(200, kept.whole);
    const after = Number(asked.get('starting_after') ?? -1);
    return streamAnswer(kept.events.filter((_, place) => !(place <= after)).map(eventFrame));
  }
}

function itemsOf(text: string): object {
  const content = [{ type: 'input_text', text }];
  const data = [{ id: 'msg_0', type: 'message', role: 'user', status: 'completed', content }];
  return { object: 'list', data, first_id: 'msg_0', last_id: 'msg_0', has_more: false };
}
