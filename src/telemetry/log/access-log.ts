// The access log: one line for every request, when it has ended. It gets plain facts; who collects them is not its business.
import { symbols } from 'pino';
import { isServerFault } from '../../errors.ts';
import { maskKeys } from './key-mask.ts';
import type { Logger } from './logger.ts';

/**
 * One line of the log: what the parts of the gateway learn about a request while they work on it, never a key, a credential
 * or a prompt. The members stand in this order; what stays undefined is left out. All are there from the beginning, so that
 * every line has the same shape for V8.
 */
export class AccessRecord {
  readonly request_id: string;
  readonly method: string;
  /** What the client read, or 499 if it left before the answer was complete. */
  status = 0;
  duration_ms = 0;
  /** Where `x-request-id` had the form of a key: what may be shown of it. */
  client_request_id: string | undefined;
  /** Of the trace, where traces are configured: 32 hexadecimal digits. */
  trace_id: string | undefined;
  route: string | undefined;
  key_prefix: string | undefined;
  tier: string | undefined;
  /** The public name that was asked for. */
  model: string | undefined;
  stream: boolean | undefined;
  upstream: string | undefined;
  upstream_model: string | undefined;
  upstream_status: number | undefined;
  upstream_request_id: string | undefined;
  /** Requests sent to upstreams for this one. */
  attempts: number | undefined;
  /** A second target was asked beside a silent first one. */
  hedged: boolean | undefined;
  prompt_tokens: number | undefined;
  completion_tokens: number | undefined;
  /** Milliseconds from the request line to the first output sent to the client. */
  ttft_ms: number | undefined;
  bytes_in: number | undefined;
  bytes_out: number | undefined;
  /** Of a realtime session: its answers that were counted, the code of the first Close, and who sent it. */
  responses: number | undefined;
  close_code: number | undefined;
  closed_by: string | undefined;
  /** How it ended: `ok`, or a code of the error table. */
  outcome: string | undefined;

  constructor(requestId: string, method: string) {
    this.request_id = requestId;
    this.method = method;
  }
}

/**
 * Writes the lines. A line of plain facts goes past the logger, which takes several times as long for it, and to the same
 * place in the same form.
 */
export class AccessLog {
  readonly #logger: Logger;
  readonly #destination: { write(line: string): unknown } | undefined;
  /** What every line of this logger carries, as members. */
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

  /**
   * @param cause what lies behind an error answer: it may name hosts, so it is for this log and no one else
   */
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

  /** Many requests end within one millisecond. */
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

/** The chain of messages and codes, without stacks: these are the troubles of networks, not of code. */
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
