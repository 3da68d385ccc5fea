// The process logger: pino with redaction. Who logs what is decided elsewhere; here only that no secret gets out.
import { fstatSync } from 'node:fs';
import { type Logger, type LoggerOptions, pino } from 'pino';
import { LogSink } from './log-sink.ts';

export type { Logger };

/**
 * Fields that may hold a credential or a prompt, should an object be logged whole by mistake. Only at the top: paths with
 * wildcards cost more than all the rest of a request's log line.
 */
const REDACT = ['authorization', 'api_key', 'secret', 'key', 'body', 'headers', 'messages'];

/** What waits in memory for a disk; beyond it lines are dropped. */
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

/** Lines of the log that no reader will see, since the start. */
let droppedElsewhere = 0;
let sink: LogSink | undefined;

/** Lines of this process's log on stdout that were dropped, because nobody took them. */
export function droppedLines(): number {
  return droppedElsewhere + (sink?.dropped ?? 0);
}

/**
 * stdout without waiting for it. Node writes to pipes and sockets without blocking; a file or a terminal it would wait for,
 * so these are written by pino's own writer, in a thread.
 */
function stdout(): pino.DestinationStream {
  if (isPiped(1)) {
    if (sink === undefined) {
      const own = new LogSink({ to: process.stdout });
      process.on('exit', () => own.end());
      sink = own;
    }
    return sink;
  }
  const file = pino.destination({ sync: false, minLength: 4096, maxLength: MAX_WAITING_BYTES });
  file.on('drop', () => {
    droppedElsewhere += 1;
  });
  // A full disk, say: pino tries again with the next lines.
  file.on('error', () => undefined);
  setInterval(() => file.flush(), 200).unref();
  return file;
}

function isPiped(descriptor: number): boolean {
  try {
    const kind = fstatSync(descriptor);
    return kind.isFIFO() || kind.isSocket();
  } catch {
    return false;
  }
}
