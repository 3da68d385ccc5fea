// The access log: one line for each finished request.
import { symbols } from 'pino';
import { isServerFault } from '../../errors.ts';
import { maskKeys } from './key-mask.ts';
import type { Logger } from './logger.ts';

/**
 * One line of the log, filled while the request is processed. It never contains a key, a credential or a prompt. Members are written in
 * this order, undefined ones are omitted. All exist from the start, so that all records have one hidden class in V8.
 */
export class AccessRecord {
  readonly request_id: string;
  readonly method: string;
  /** The status sent, or 499 if the client disconnected before the response was complete. */
  status = 0;
  duration_ms = 0;
  /** The masked `x-request-id`, if it had the form of a key. */
  client_request_id: string | undefined;
  /** 32 hexadecimal digits; only with tracing. */
  trace_id: string | undefined;
  route: string | undefined;
  key_prefix: string | undefined;
  tier: string | undefined;
  /** The requested public name. */
  model: string | undefined;
  stream: boolean | undefined;
  upstream: string | undefined;
  upstream_model: string | undefined;
  upstream_status: number | undefined;
  upstream_request_id: string | undefined;
  /** Requests sent to upstreams for this one. */
  attempts: number | undefined;
  /** Whether a hedge request was sent. */
  hedged: boolean | undefined;
  prompt_tokens: number | undefined;
  completion_tokens: number | undefined;
  /** Milliseconds from the request line to the first output sent to the client. */
  ttft_ms: number | undefined;
  bytes_in: number | undefined;
  bytes_out: number | undefined;
  /** Of a realtime session: counted responses, the first close code, and the side that sent it. */
  responses: number | undefined;
  close_code: number | undefined;
  closed_by: string | undefined;
  /** `ok` or an error code. */
  outcome: string | undefined;

  constructor(requestId: string, method: string) {
    this.request_id = requestId;
    this.method = method;
  }
}

/** Writes the lines. Lines without a cause bypass the logger, which is several times slower, with the same format and destination. */
export class AccessLog {
  readonly #logger: Logger;
  readonly #destination: { write(line: string): unknown } | undefined;
  /** The bindings of the logger, as JSON members. */
  readonly #bound: string;
  #at = 0;
  #time = '';

  constructor(logger: Logger) {
    this.#logger = logger;
    const stream: unknown = Reflect.get(logger, symbols.streamSym);
    this.#destination = isWritable(stream) ? stream : undefined;
    const bound = JSON.stringify(logger.bindings()).slice(1, -1);
    this.#bound = bound === '' ? '' : `${bound},`;
  }

  /** @param cause of an error response. It may name hosts, so only this log shows it */
  write(record: Readonly<AccessRecord>, cause: unknown): void {
    if (cause !== undefined) {
      const line = { ...record, cause: describe(cause) };
      if (isServerFault(record.status)) this.#logger.warn(line, 'request');
      else this.#logger.info(line, 'request');
    } else if (this.#destination === undefined) this.#logger.info(record, 'request');
    else if (this.#logger.isLevelEnabled('info')) {
      const facts = JSON.stringify(record).slice(1, -1);
      this.#destination.write(
        `{"level":"info","time":"${this.#now()}",${this.#bound}${facts},"msg":"request"}\n`,
      );
    }
  }

  /** Cached, because many requests end within one millisecond. */
  #now(): string {
    const now = Date.now();
    if (now !== this.#at) {
      this.#at = now;
      this.#time = new Date(now).toISOString();
    }
    return this.#time;
  }
}

function isWritable(stream: unknown): stream is { write(line: string): unknown } {
  return typeof stream === 'object' && stream !== null && 'write' in stream;
}

/** The chain of messages and codes, without stacks: causes are network errors, not bugs. */
function describe(cause: unknown): string {
  const parts: string[] = [];
  for (let error = cause; error !== undefined && parts.length < 5; ) {
    if (!(error instanceof Error)) {
      parts.push(String(error));
      break;
    }
    const code: unknown = Reflect.get(error, 'code');
    parts.push(typeof code === 'string' ? `${code}: ${error.message}` : error.message);
    error = error.cause;
  }
  return maskKeys(parts.join(' < '));
}
