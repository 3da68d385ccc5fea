// The process logger: pino with redaction. Who logs what is decided elsewhere; here only that no secret gets out.
import { type Logger, type LoggerOptions, pino } from 'pino';

export type { Logger };

/**
 * Fields that may hold a credential or a prompt, should an object be logged whole by mistake. Only at the top: paths with
 * wildcards cost more than all the rest of a request's log line.
 */
const REDACT = ['authorization', 'api_key', 'secret', 'key', 'body', 'headers', 'messages'];

/** Lines are written in pieces of this size or five times a second: a system call for every line costs more than the line. */
const WRITE_BYTES = 4096;
const WRITE_MS = 200;
/** What waits for a reader of stdout that does not read; beyond it lines are dropped, because requests must not wait. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/**
 * @param destination a stream (tests) or undefined for stdout
 * @param level pino's level names; default `LOG_LEVEL` of the environment, else `info`
 */
export function createLogger(
  destination?: NodeJS.WritableStream,
  level: string = process.env['LOG_LEVEL'] ?? 'info',
): Logger {
  const options: LoggerOptions = {
    level,
    base: null,
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
    formatters: { level: (label) => ({ level: label }) },
    redact: { paths: REDACT, censor: '[redacted]' },
    serializers: { err: describeError },
  };
  return pino(options, destination ?? stdout());
}

/** Name, text and place of an error, and of what caused it. Other properties stay out: foreign errors carry headers and bodies. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack, cause } = error;
  return { type: name, message, stack, ...(cause === undefined ? {} : { cause: describeError(cause) }) };
}

/** stdout, buffered; what is left is written when the process exits. */
function stdout(): pino.DestinationStream {
  const sink = pino.destination({ sync: false, minLength: WRITE_BYTES, maxLength: MAX_WAITING_BYTES });
  setInterval(() => sink.flush(), WRITE_MS).unref();
  return sink;
}
