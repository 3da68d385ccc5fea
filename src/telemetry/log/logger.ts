// The process logger: pino with redaction of secrets.
import { fstatSync } from 'node:fs';
import { type Logger, type LoggerOptions, pino } from 'pino';
import { maskKeys } from './key-mask.ts';
import { fileOutput, LogSink, streamOutput } from './log-sink.ts';

export type { Logger };

/**
 * Fields that may contain a credential or a prompt, in case a whole object is logged by mistake. Top level only: wildcard paths cost
 * more than the rest of a log line.
 */
const REDACT = ['authorization', 'api_key', 'secret', 'key', 'body', 'headers', 'messages'];

/** `LOG_LEVEL` is not a level. */
export class LogLevelError extends Error {
  override readonly name = 'LogLevelError';
}

/** @returns `LOG_LEVEL` in any case; `info` where it is not set @throws LogLevelError */
export function readLogLevel(env: NodeJS.ProcessEnv): string {
  const level = env['LOG_LEVEL']?.trim().toLowerCase() || 'info';
  const known = [...Object.keys(pino.levels.values), 'silent'];
  if (known.includes(level)) return level;
  throw new LogLevelError(`the environment variable LOG_LEVEL must be one of ${known.join(', ')}`);
}

/**
 * @param destination a stream (tests) or undefined for stdout
 * @param level pino's level names; default `LOG_LEVEL` of the environment, else `info`
 * @throws LogLevelError
 */
export function createLogger(
  destination?: NodeJS.WritableStream,
  level: string = readLogLevel(process.env),
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

/** Name, message and stack of an error and its causes. Other properties are omitted: errors of libraries may carry headers and bodies. */
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

/** Log lines dropped by this process since its start. */
export function droppedLines(): number {
  return sink?.dropped ?? 0;
}

/** Writes whole log lines of a worker to the log of this process. */
export function writeWorkerLines(lines: string): void {
  stdout().write(lines);
}

/** The non-blocking stdout, shared by all loggers of the process. */
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
