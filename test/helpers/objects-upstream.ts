// An upstream that keeps files, uploads, batches, vector stores and conversations of everybody in one heap, as an account at a
// vendor does, and records what it was asked. Whose an object is, it does not know: that is the gateway's to know.
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';

type Thing = Record<string, unknown> & { readonly id: string };

export interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly bytes: number;
  readonly sha256: string;
  /** Of short ones. */
  readonly text: string;
}

const PREFIXES: Readonly<Record<string, string>> = {
  files: 'file-',
  uploads: 'upload_',
  parts: 'part_',
  batches: 'batch_',
  vector_stores: 'vs_',
  file_batches: 'vsfb_',
  conversations: 'conv_',
  containers: 'cntr_',
  container_files: 'cfile_',
  skills: 'skill_',
  videos: 'video_',
  characters: 'char_',
};

export class ObjectsUpstream implements AsyncDisposable {
  readonly asked: Asked[] = [];
  readonly things = new Map<string, Thing>();
  readonly contents = new Map<string, Buffer>();
  /** Answers instead; true when it has. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;
  /** Contents above this size are counted and not kept. */
  readonly #server = http.createServer((request, response) => void this.#answer(request, response));

  static async start(): Promise<ObjectsUpstream> {
    const upstream = new ObjectsUpstream();
    upstream.#server.listen(0, '127.0.0.1');
    await once(upstream.#server, 'listening');
    return upstream;
  }

  get baseUrl(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return `http://127.0.0.1:${address.port}/v1`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  /** Puts an object there that no client of the gateway has made. */
  put(kind: string, fields: Record<string, unknown> = {}): string {
    const id = `${PREFIXES[kind] ?? 'x_'}${randomBytes(12).toString('hex')}`;
    this.things.set(id, { ...fields, id });
    return id;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.intercept?.(request, response) === true) return;
    const hash = createHash('sha256');
    const kept: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const chunk of request) {
        bytes += chunk.length;
        hash.update(chunk);
        if (bytes < 1024 * 1024) kept.push(chunk);
      }
    } catch {
      return;
    }
    const body = Buffer.concat(kept);
    const { method = '', url = '' } = request;
    this.asked.push({
      method,
      url,
      headers: request.headers,
      bytes,
      sha256: hash.digest('hex'),
      text: body.toString('utf8', 0, 4096),
    });
    const [status, answer] = this.#carryOut(method, url, body, bytes);
    if (url.startsWith('/v1/responses') && method === 'POST' && status === 200 && isStream(body)) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(eventsOf(answer));
      return;
    }
    const payload = Buffer.isBuffer(answer) ? answer : Buffer.from(JSON.stringify(answer, null, 1));
    response.writeHead(status, {
      'content-type': Buffer.isBuffer(answer) ? 'application/octet-stream' : 'application/json',
      'content-length': payload.length,
      'set-cookie': 'a=b',
      'openai-organization': 'org-of-operator',
      'x-request-id': 'upstream-1',
      'openai-processing-ms': '7',
    });
    response.end(payload);
  }

  /** A response with an item of each kind, a container, and a file in it. */
  #respond(fields: Record<string, unknown>): Thing {
    const [container, file] = [`cntr_${random()}`, `cfile_${random()}`];
    const id = `resp_${random()}`;
    const answer = {
      id,
      object: 'response',
      status: 'completed',
      model: fields['model'],
      store: fields['store'] ?? true,
      output: [
        { type: 'reasoning', id: `rs_${random()}`, summary: [] },
        { type: 'web_search_call', id: `ws_${random()}`, status: 'completed' },
        { type: 'image_generation_call', id: `ig_${random()}`, status: 'completed', result: 'aGk=' },
        { type: 'code_interpreter_call', id: `ci_${random()}`, container_id: container, code: 'print(1)' },
        {
          type: 'mcp_approval_request',
          id: `mcpr_${random()}`,
          name: 'n',
          arguments: '{}',
          server_label: 's',
        },
        { type: 'function_call', id: `fc_${random()}`, call_id: 'call_1', name: 'f', arguments: '{}' },
        {
          type: 'message',
          id: `msg_${random()}`,
          role: 'assistant',
          status: 'completed',
          content: [
            {
              type: 'output_text',
              text: 'hello',
              annotations: [
                {
                  type: 'container_file_citation',
                  container_id: container,
                  file_id: file,
                  filename: 'a.txt',
                },
                { type: 'file_citation', file_id: `file-${random()}`, filename: 'b.txt', index: 0 },
              ],
            },
          ],
        },
      ],
      usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
    };
    this.things.set(id, answer);
    return answer;
  }

  #carryOut(method: string, url: string, body: Buffer, size: number): [number, object | Buffer] {
    const [path = ''] = url.split('?');
    const [, , collection = '', id, sub, subId, last] = path.split('/');
    const fields = body[0] === 0x7b ? JSON.parse(String(body)) : {};
    if (collection === 'responses' && method === 'POST') return [200, this.#respond(fields)];
    if (id === undefined) {
      if (method === 'GET')
        return [200, { object: 'list', data: [...this.things.values()], has_more: false }];
      const purpose = /name="purpose"\r\n\r\n(\w+)/.exec(String(body))?.[1];
      const made = this.put(collection, {
        ...fields,
        ...(purpose === undefined ? {} : { purpose }),
        object: collection,
        bytes: size,
      });
      this.contents.set(made, contentOf(body));
      return [200, this.things.get(made) ?? {}];
    }
    if (collection === 'videos' && /^(?:edits|extensions|characters)$/.test(id) && method === 'POST')
      return [200, this.things.get(this.put(id === 'characters' ? id : collection)) ?? {}];
    if (collection === 'videos' && id === 'characters') return [200, { id: sub, name: 'c' }];
    const thing = this.things.get(id);
    if (thing === undefined) return [404, missing(id)];
    if (method === 'DELETE' && sub === undefined) {
      this.things.delete(id);
      return [200, { id, object: collection, deleted: true }];
    }
    if (sub === 'content') return [200, this.contents.get(id) ?? Buffer.alloc(0)];
    if (sub === 'parts' || (sub === 'file_batches' && subId === undefined))
      return [200, this.things.get(this.put(sub)) ?? {}];
    if (sub === 'complete') {
      const file = this.put('files', { object: 'file', purpose: 'assistants' });
      return [200, { ...thing, status: 'completed', file: this.things.get(file) }];
    }
    if (collection === 'containers' && sub === 'files' && method === 'POST')
      return [200, this.things.get(this.put('container_files')) ?? {}];
    if (sub === 'remix') return [200, this.things.get(this.put(collection)) ?? {}];
    if (sub === 'cancel') return [200, { ...thing, status: 'cancelling' }];
    if (sub === 'files' && subId !== undefined)
      return [
        200,
        last === 'content' ? { data: [] } : { id: subId, vector_store_id: id, deleted: method === 'DELETE' },
      ];
    if (sub !== undefined)
      return [200, { object: 'list', data: [{ id: 'inner' }], has_more: false, ...fields }];
    if (method === 'POST') this.things.set(id, { ...thing, ...fields, id });
    return [200, this.things.get(id) ?? {}];
  }
}

function random(): string {
  return randomBytes(12).toString('hex');
}

function isStream(body: Buffer): boolean {
  return /"stream"\s*:\s*true/.test(String(body));
}

/** The stream that tells of the same response. */
function eventsOf(answer: object): string {
  const output: unknown = Reflect.get(answer, 'output');
  const items = Array.isArray(output) ? output : [];
  const events = [
    { type: 'response.created', response: { ...answer, output: [], status: 'in_progress' } },
    ...items.flatMap((item: object, output_index) => {
      const content: unknown = Reflect.get(item, 'content');
      const annotations = Array.isArray(content) ? content.flatMap((part) => part.annotations) : [];
      return [
        {
          type: 'response.output_item.added',
          output_index,
          item: { ...item, ...(content === undefined ? {} : { content: [] }) },
        },
        ...annotations.map((annotation: object) => ({
          type: 'response.output_text.annotation.added',
          annotation,
        })),
        { type: 'response.output_text.delta', delta: 'x' },
        { type: 'response.output_item.done', output_index, item },
      ];
    }),
    { type: 'response.completed', response: answer },
  ];
  return events
    .map(
      (event, sequence_number) =>
        `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`,
    )
    .join('');
}

/** The file in a multipart body, as far as it was kept. */
function contentOf(body: Buffer): Buffer {
  const text = body.toString('latin1');
  const start = text.indexOf('\r\n\r\n', text.indexOf('filename='));
  const end = text.indexOf('\r\n--', start + 4);
  return start === -1 || end === -1 ? Buffer.alloc(0) : body.subarray(start + 4, end);
}

function missing(id: string): object {
  return {
    error: { message: `No such object: ${id}`, type: 'invalid_request_error', param: 'id', code: null },
  };
}
