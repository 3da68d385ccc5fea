// Classifies errors of Redis: Redis is unavailable, or one command failed. Errors of ioredis do not pass beyond this file,
// because they carry the command with all its arguments.

/**
 * Why there is no answer.
 * - `away`: Redis was unavailable before the call, which was not sent.
 * - `overload`: the maximum number of calls is in flight; this one was not sent.
 * - `deadline`: no answer arrived in time. Redis may have executed the command.
 * - `lost`: the connection closed, or Redis reported that it cannot serve, while the call was in flight.
 * - `closed`: the client was closed.
 */
type RedisUnavailableReason = 'away' | 'overload' | 'deadline' | 'lost' | 'closed';

/** Redis is unavailable at the moment. The message holds no value, key or credential. */
export class RedisUnavailable extends Error {
  override readonly name = 'RedisUnavailable';
  readonly reason: RedisUnavailableReason;

  constructor(reason: RedisUnavailableReason, message: string, cause?: Error) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** Whether Redis may have executed a call that failed with this error. */
export function mayHaveExecuted(error: unknown): boolean {
  return error instanceof RedisUnavailable && (error.reason === 'deadline' || error.reason === 'lost');
}

/** Redis answered the command with an error and is otherwise available. */
export class RedisCommandError extends Error {
  override readonly name = 'RedisCommandError';
  /** First word of the answer: `WRONGTYPE`, `OOM`, `NOSCRIPT`, `CROSSSLOT`, a script's own word, or `ERR`. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * - `away`: send nothing until a probe has succeeded.
 * - `command`: this command failed (such as `OOM` for a write); others can succeed.
 * - `foreign`: neither an error of Redis nor of ioredis.
 */
type ErrorVerdict =
  | { readonly kind: 'away'; readonly cause: Error }
  | { readonly kind: 'command'; readonly error: RedisCommandError }
  | { readonly kind: 'foreign' };

/**
 * Error codes that apply to every command or to every write, such as a read-only replica, a loading server, a Cluster that
 * is down, a script that does not end, or a failed login.
 */
const AWAY = new Set([
  'READONLY',
  'LOADING',
  'MASTERDOWN',
  'CLUSTERDOWN',
  'BUSY',
  'UNKILLABLE',
  'NOREPLICAS',
  'MISCONF',
  'NOAUTH',
  'WRONGPASS',
]);

/** Names of ioredis errors for a failed connection. */
const CLIENT_ERRORS = new Set([
  'AbortError',
  'InterruptError',
  'ParserError',
  'ClusterAllFailedError',
  'MaxRetriesPerRequestError',
  'DeadlinePassed',
]);

/** Messages of ioredis where it throws a plain Error. */
const CLIENT_TEXTS =
  /^(Connection is closed|Stream isn't writeable|Cluster isn't ready|None of startup nodes|Too many Cluster redirections|Command timed out|All sentinels are unreachable|connect ETIMEDOUT|Socket timeout)/;

const MAX_TEXT = 200;

/** Classifies an error from ioredis or from the code that uses it. */
export function classifyError(error: unknown): ErrorVerdict {
  if (!(error instanceof Error)) return { kind: 'foreign' };
  if (error.name === 'ReplyError') {
    const code = codeOf(error.message);
    return AWAY.has(code)
      ? { kind: 'away', cause: plainError(error) }
      : { kind: 'command', error: new RedisCommandError(code, plainText(error.message)) };
  }
  const isClientError =
    CLIENT_ERRORS.has(error.name) || CLIENT_TEXTS.test(error.message) || 'syscall' in error;
  return isClientError ? { kind: 'away', cause: plainError(error) } : { kind: 'foreign' };
}

/** Copies the name and message of an error and drops everything else. */
export function plainError(error: unknown): Error {
  const plain = new Error(plainText(error instanceof Error ? error.message : String(error)));
  if (error instanceof Error) plain.name = error.name;
  // The stack is inside ioredis and does not help.
  delete plain.stack;
  return plain;
}

function codeOf(message: string): string {
  const word = /^[A-Z][A-Z0-9_]*(?=\s|$)/.exec(message)?.[0] ?? 'ERR';
  // Before version 7, Redis prefixes the error of a command in a script with its own text.
  return word === 'ERR' ? (/^ERR Error running script.*?: -([A-Z]+) /s.exec(message)?.[1] ?? word) : word;
}

/** Removes the arguments that Redis repeats for an unknown command, and credentials in URLs. */
function plainText(text: string): string {
  return text
    .replace(/,? with args beginning with:.*/s, '')
    .replace(/\/\/[^\s/@]*@/g, '//***@')
    .slice(0, MAX_TEXT);
}
