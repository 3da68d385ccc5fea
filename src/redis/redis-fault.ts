// What an error of Redis means: that Redis is away, or that one command was at fault. It decides nothing about when to try
// again. What ioredis throws does not go further than here, since its errors carry the command with all its arguments.

/**
 * Why no answer came.
 * - `away`: Redis was away before the call, which was not sent.
 * - `overload`: as many calls as allowed are under way; this one was not sent.
 * - `deadline`: no answer came in time. Whether Redis did what was asked is not known.
 * - `lost`: the connection ended, or Redis said that it cannot serve, while the call was under way.
 * - `closed`: this client was closed.
 */
type RedisUnavailableReason = 'away' | 'overload' | 'deadline' | 'lost' | 'closed';

/** Redis cannot be asked at the moment. Its message holds no value, key or credential. */
export class RedisUnavailable extends Error {
  override readonly name = 'RedisUnavailable';
  readonly reason: RedisUnavailableReason;

  constructor(reason: RedisUnavailableReason, message: string, cause?: Error) {
    super(message, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** Redis answered this command with an error and works otherwise. */
export class RedisCommandError extends Error {
  override readonly name = 'RedisCommandError';
  /** First word of the answer: `WRONGTYPE`, `OOM`, `NOSCRIPT`, `CROSSSLOT`, a word of a script's own; `ERR` in general. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * - `away`: nobody should ask until a probe has succeeded.
 * - `command`: this command is at fault, or cannot be done now (`OOM` for a write), and others can.
 * - `foreign`: not an error of Redis or of its client.
 */
type ErrorVerdict =
  | { readonly kind: 'away'; readonly cause: Error }
  | { readonly kind: 'command'; readonly error: RedisCommandError }
  | { readonly kind: 'foreign' };

/**
 * Answers that hold for every command, or for every write: a replica, a server that loads its data, a master that is gone,
 * a Cluster without all its slots, a script that does not end, too few replicas, a disk that takes no snapshot, a login that
 * is not accepted.
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

/** Names of what ioredis rejects with when it is its connection that failed. */
const CLIENT_ERRORS = new Set([
  'AbortError',
  'InterruptError',
  'ParserError',
  'ClusterAllFailedError',
  'MaxRetriesPerRequestError',
  'DeadlinePassed',
]);

/** Texts of ioredis where it throws a plain Error. */
const CLIENT_TEXTS =
  /^(Connection is closed|Stream isn't writeable|Cluster isn't ready|None of startup nodes|Too many Cluster redirections|Command timed out|All sentinels are unreachable|connect ETIMEDOUT|Socket timeout)/;

const MAX_TEXT = 200;

/** What `error`, from ioredis or from who used it, means. */
export function classifyError(error: unknown): ErrorVerdict {
  if (!(error instanceof Error)) return { kind: 'foreign' };
  if (error.name === 'ReplyError') {
    const code = codeOf(error.message);
    return AWAY.has(code)
      ? { kind: 'away', cause: plainError(error) }
      : { kind: 'command', error: new RedisCommandError(code, plainText(error.message)) };
  }
  const isOurs = CLIENT_ERRORS.has(error.name) || CLIENT_TEXTS.test(error.message) || 'syscall' in error;
  return isOurs ? { kind: 'away', cause: plainError(error) } : { kind: 'foreign' };
}

/** The name and text of an error, without what else a foreign one carries. */
export function plainError(error: unknown): Error {
  const plain = new Error(plainText(error instanceof Error ? error.message : String(error)));
  if (error instanceof Error) plain.name = error.name;
  // Where it came about is inside of ioredis, which helps nobody.
  delete plain.stack;
  return plain;
}

function codeOf(message: string): string {
  const word = /^[A-Z][A-Z0-9_]*(?=\s|$)/.exec(message)?.[0] ?? 'ERR';
  // Before version 7 Redis puts the answer that a command in a script got behind a text of its own.
  return word === 'ERR' ? (/^ERR Error running script.*?: -([A-Z]+) /s.exec(message)?.[1] ?? word) : word;
}

/** Redis repeats arguments of an unknown command; a URL may hold a login. */
function plainText(text: string): string {
  return text
    .replace(/,? with args beginning with:.*/s, '')
    .replace(/\/\/[^\s/@]*@/g, '//***@')
    .slice(0, MAX_TEXT);
}
