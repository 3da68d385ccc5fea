// The process logger: pino with redaction. Who logs what is decided elsewhere; here only that no secret gets out.
import { fstatSync } from 'node:fs';
import { type Logger, type LoggerOptions, pino } from 'pino';
import { maskKeys } from './key-mask.ts';
import { fileOutput, LogSink, streamOutput } from './log-sink.ts';

export type { Logger };

/**
 * Fields that may hold a credential or a prompt, should an object be logged whole by mistake. Only at the top: paths with
 * wildcards cost more than all the rest of a request's log line.
 */
const REDACT = ['authorization', 'api_key', 'secret', 'key', 'body', 'headers', 'messages'];

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
  if (!(error instanceof Error)) return maskKeys(String(error));
  const { name, message, stack, cause } = error;
  const [shownMessage, shownStack] = [maskKeys(message), stack && maskKeys(stack)];
  return {
    type: name,
    message: shownMessage,
    stack: shownStack,
    ...(cause === undefined ? {} : { cause: describeError(cause) }),
  };
}

let sink: LogSink | undefined;

/** Lines of this process's log on stdout that nobody will read, since the start. */
export function droppedLines(): number {
  return sink?.dropped ?? 0;
}

/** Lines of another process's log, for the log of this one. */
export function writeWorkerLine(line: string): void {
  stdout().write(line);
}

/** stdout without waiting for it; one for the process, however many loggers it has. */
function stdout(): pino.DestinationStream {
  if (sink === undefined) {
    const own = new LogSink(isPiped(1) ? streamOutput(process.stdout) : fileOutput(1));
    process.on('exit', () => own.end());
    sink = own;
  }
  return sink;
}

function isPiped(descriptor: number): boolean {
  try {
    const kind = fstatSync(descriptor);
    return kind.isFIFO() || kind.isSocket();
  } catch {
    return false;
  }
}
