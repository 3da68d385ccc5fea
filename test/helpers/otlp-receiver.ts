// A receiver of traces: OTLP over HTTP as a collector takes it, decoded from its protobuf by field numbers
// (opentelemetry-proto, trace/v1/trace.proto), with every byte kept for those who look for what must not be there.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { until } from './wait.ts';

export type SpanValue = string | number | boolean | null;

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty for a root. */
  readonly parentId: string;
  readonly traceState: string;
  readonly name: string;
  /** 2 is a server's, 3 a client's. */
  readonly kind: number;
  readonly attributes: Readonly<Record<string, SpanValue>>;
  readonly events: readonly string[];
  /** 0 unset, 1 ok, 2 error. */
  readonly status: number;
  readonly resource: Readonly<Record<string, SpanValue>>;
}

export class OtlpReceiver implements AsyncDisposable {
  readonly spans: ReceivedSpan[] = [];
  readonly requests: { readonly path: string; readonly headers: IncomingMessage['headers'] }[] = [];
  /** Everything that came, as it came. */
  bytes = Buffer.alloc(0);
  /** Answers an export; default 200 without a body. */
  answer: (response: ServerResponse) => void = (response) => response.writeHead(200).end();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks);
        this.bytes = Buffer.concat([this.bytes, body]);
        this.requests.push({ path: request.url ?? '', headers: request.headers });
        this.spans.push(...decodeSpans(body));
        this.answer(response);
      });
    });
  }

  static async start(): Promise<OtlpReceiver> {
    const receiver = new OtlpReceiver();
    receiver.#server.listen(0, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return `http://127.0.0.1:${address.port}`;
  }

  /** The spans of a trace, when at least so many have come. */
  async trace(traceId: string, count: number): Promise<readonly ReceivedSpan[]> {
    const found = () => this.spans.filter((span) => span.traceId === traceId);
    return await until(() => found().length >= count && found(), `${count} spans of ${traceId}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }
}

/** Fields of one protobuf message: number → values, those with a length as bytes, the others as numbers. */
type Fields = Map<number, (Buffer | number)[]>;

function fieldsOf(bytes: Buffer): Fields {
  const fields: Fields = new Map();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const values = fields.get(tag >> 3) ?? [];
    fields.set(tag >> 3, values);
    const wire = tag & 7;
    if (wire === 0) values.push(Number(BigInt.asIntN(64, varint())));
    else if (wire === 1) {
      values.push(bytes.subarray(at, at + 8));
      at += 8;
    } else if (wire === 2) {
      const length = Number(varint());
      values.push(bytes.subarray(at, at + length));
      at += length;
    } else if (wire === 5) {
      values.push(bytes.readUInt32LE(at));
      at += 4;
    } else throw new Error(`wire type ${wire}`);
  }
  return fields;
}

const messages = (fields: Fields, number: number): Fields[] =>
  (fields.get(number) ?? []).map((value) => fieldsOf(bytesOf(value)));
const text = (fields: Fields, number: number): string => bytesOf(fields.get(number)?.[0]).toString('utf8');
const hex = (fields: Fields, number: number): string => bytesOf(fields.get(number)?.[0]).toString('hex');

function bytesOf(value: Buffer | number | undefined): Buffer {
  return Buffer.isBuffer(value) ? value : Buffer.alloc(0);
}

function numberOf(value: Buffer | number | undefined): number {
  return typeof value === 'number' ? value : 0;
}

/** AnyValue: 1 string, 2 bool, 3 int, 4 double. */
function anyValue(fields: Fields | undefined): SpanValue {
  if (fields === undefined) return null;
  if (fields.has(1)) return text(fields, 1);
  if (fields.has(2)) return numberOf(fields.get(2)?.[0]) === 1;
  if (fields.has(3)) return numberOf(fields.get(3)?.[0]);
  return fields.has(4) ? bytesOf(fields.get(4)?.[0]).readDoubleLE() : null;
}

function attributesOf(fields: Fields, number: number): Record<string, SpanValue> {
  return Object.fromEntries(
    messages(fields, number).map((pair) => [text(pair, 1), anyValue(messages(pair, 2)[0])]),
  );
}

function decodeSpans(body: Buffer): ReceivedSpan[] {
  return messages(fieldsOf(body), 1).flatMap((resourceSpans) => {
    const [resource] = messages(resourceSpans, 1);
    const about = resource === undefined ? {} : attributesOf(resource, 1);
    return messages(resourceSpans, 2).flatMap((scope) =>
      messages(scope, 2).map((span) => ({
        traceId: hex(span, 1),
        spanId: hex(span, 2),
        traceState: text(span, 3),
        parentId: hex(span, 4),
        name: text(span, 5),
        kind: numberOf(span.get(6)?.[0]),
        attributes: attributesOf(span, 9),
        events: messages(span, 11).map((event) => text(event, 2)),
        status: numberOf(messages(span, 15)[0]?.get(3)?.[0]),
        resource: about,
      })),
    );
  });
}
