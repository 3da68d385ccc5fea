// A scripted upstream for the Responses API over WebSockets: it answers each `response.create` with the events of a response, and
// records what it read. It speaks plain HTTP too, so that both ways can be compared.
import { RealtimeUpstream, type UpstreamSession } from './realtime-upstream.ts';

type Json = Readonly<Record<string, unknown>>;

export interface Created {
  /** The connection that it came on, from 0. */
  readonly connection: number;
  readonly text: string;
  readonly event: Json;
}

/** The events of a response, in order. */
export type Answer = (event: Json, id: string) => readonly Json[] | Promise<readonly Json[]>;

export class ResponsesUpstream implements AsyncDisposable {
  readonly created: Created[] = [];
  readonly server: RealtimeUpstream;
  #count = 0;
  /** Null answers nothing: the test does. */
  answer: Answer | null = (event, id) => eventsOf(event, id);

  private constructor(server: RealtimeUpstream) {
    this.server = server;
  }

  static async start(): Promise<ResponsesUpstream> {
    const upstream = new ResponsesUpstream(await RealtimeUpstream.start());
    upstream.server.options = { onSession: (session) => upstream.#begin(session), protocol: () => false };
    return upstream;
  }

  get baseUrl(): string {
    return this.server.baseUrl;
  }

  /** The events that it read, without those of other types. */
  get events(): readonly Json[] {
    return this.created.map(({ event }) => event);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.server[Symbol.asyncDispose]();
  }

  #begin({ socket }: UpstreamSession): void {
    const connection = this.server.sessions.length - 1;
    let work = Promise.resolve();
    socket.on('message', (data) => {
      const text = String(data);
      const event: Json = JSON.parse(text);
      this.#count += 1;
      const id = `resp_${this.#count}`;
      this.created.push({ connection, text, event });
      work = work.then(async () => {
        const events = (await this.answer?.(event, id)) ?? [];
        for (const each of events) socket.send(JSON.stringify(each));
      });
    });
  }
}

/** @param tokens input and output that the last event reports */
export function eventsOf(event: Json, id: string, text = 'Hello.', tokens = [10, 5]): readonly Json[] {
  const { model, stream_id } = event;
  const [input = 0, output = 0] = tokens;
  const lane = stream_id === undefined ? {} : { stream_id };
  const response = { id, object: 'response', status: 'in_progress', model, output: [], usage: null };
  const item = {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    status: 'completed',
    content: [{ type: 'output_text', text, annotations: [] }],
  };
  const at = { item_id: item.id, output_index: 0, content_index: 0 };
  const usage = {
    input_tokens: input,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: input + output,
  };
  const events = [
    { type: 'response.created', response },
    {
      type: 'response.output_item.added',
      output_index: 0,
      item: { ...item, status: 'in_progress', content: [] },
    },
    { type: 'response.output_text.delta', ...at, delta: text },
    { type: 'response.output_text.done', ...at, text },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: { ...response, status: 'completed', output: [item], usage } },
  ];
  return events.map((each, index) => ({ ...each, sequence_number: index, ...lane }));
}
