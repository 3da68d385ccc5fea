// The process logger: pino with redaction. Who logs what is decided elsewhere; here only that no secret gets out.
import { type Logger, type LoggerOptions, pino } from 'pino';

export type { Logger };

/** Fields that may hold a credential or a prompt wherever an object is logged by mistake. */
const REDACT = ['authorization', 'api_key', 'secret', 'key', 'body', 'headers', 'messages'].flatMap(
  (name) => [name, `*.${name}`],
);

/**
 * @param destination a stream (tests) or undefined for stdout
 * @param level pino's level names; default `info`
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
  };
  return destination === undefined
    ? pino(options, pino.destination({ sync: true }))
    : pino(options, destination);
}
