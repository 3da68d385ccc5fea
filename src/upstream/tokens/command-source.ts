// Tokens that a program prints, as kubectl's exec plugins and the `credential_process` of AWS do.
import { type ChildProcess, spawn } from 'node:child_process';
import { z } from 'zod';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
import { parse } from '../../wire/error-answer.ts';
import {
  type AccessToken,
  accessToken,
  lifeFromSeconds,
  lifeUntil,
  TokenError,
  type TokenSource,
} from './token-source.ts';

type Command = Extract<UpstreamAuth, { kind: 'command' }>;

/** In bytes. */
const MAX_OUTPUT = 64 * 1024;
/** How long the output may stay open when the program has ended, in milliseconds: a process that it has started may hold it. */
const LEFT_OPEN_MS = 500;
/** What the program sees of the environment besides `env`: enough to find programs and their configuration. */
const PASSED = ['PATH', 'HOME', 'USER', 'LANG', 'TMPDIR', 'SSL_CERT_FILE', 'SSL_CERT_DIR'];

const Printed = z.looseObject({
  token: z.unknown().optional(),
  access_token: z.unknown().optional(),
  expires_in: z.unknown().optional(),
  expires_at: z.unknown().optional(),
  expiration: z.unknown().optional(),
  Expiration: z.unknown().optional(),
  expiry: z.unknown().optional(),
});
/** `client.authentication.k8s.io`. */
const ExecCredential = z.looseObject({
  kind: z.literal('ExecCredential'),
  status: z.looseObject({ token: z.unknown().optional(), expirationTimestamp: z.unknown().optional() }),
});

/** @param config `run` is the program with its arguments */
export function commandSource(config: Command): TokenSource {
  return async (signal) => readPrinted(await run(config, signal));
}

/**
 * Runs the program without a shell, in a process group of its own. When the flight ends, the group ends with it: what the program has
 * started must neither live longer nor keep the output open.
 */
function run({ run: [program = '', ...words], env }: Command, signal: AbortSignal): Promise<string> {
  const passed = PASSED.flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  );
  const child = spawn(program, words, {
    env: { ...Object.fromEntries(passed), ...env },
    detached: true,
    // Its messages may hold a credential.
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let isOver = false;
    let left: NodeJS.Timeout | undefined;
    const end = (fault?: string) => {
      clearTimeout(left);
      if (isOver) return;
      isOver = true;
      signal.removeEventListener('abort', onAbort);
      process.off('exit', kill);
      kill();
      child.stdout.destroy();
      if (fault === undefined) resolve(Buffer.concat(chunks).toString());
      else reject(new TokenError(`the program of \`auth.command\` ${fault}`));
    };
    const kill = () => killGroup(child);
    const onAbort = () => end('did not end in time');
    process.once('exit', kill);
    signal.addEventListener('abort', onAbort, { once: true });
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_OUTPUT) end('printed more than 64 KiB');
      else chunks.push(chunk);
    });
    child.once('error', ({ code }: NodeJS.ErrnoException) => end(notStarted(code)));
    child.once('exit', () => {
      if (!isOver) left = setTimeout(() => end(endOf(child)), LEFT_OPEN_MS);
    });
    child.once('close', () => end(endOf(child)));
    if (signal.aborted) onAbort();
  });
}

/** The group outlives its first process as long as it has another one. */
function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All of it has ended.
  }
}

function notStarted(code: string | undefined): string {
  if (code === 'ENOENT') return 'does not exist';
  return code === 'EACCES' ? 'may not be executed' : `cannot be started (${code ?? 'unknown cause'})`;
}

function endOf({ exitCode, signalCode }: ChildProcess): string | undefined {
  if (exitCode === 0) return undefined;
  return exitCode === null
    ? `ended by ${signalCode ?? 'an unknown cause'}`
    : `ended with ${exitCode}; run it by hand to see why`;
}

/** @throws TokenError */
function readPrinted(text: string): AccessToken {
  const json = parse(text);
  if (json === undefined) throw new TokenError('the program of `auth.command` did not print JSON');
  const exec = ExecCredential.safeParse(json);
  if (exec.success) {
    const { token, expirationTimestamp } = exec.data.status;
    return accessToken(token, lifeUntil(expirationTimestamp));
  }
  const printed = Printed.safeParse(json);
  if (!printed.success) throw new TokenError('the program of `auth.command` did not print a JSON object');
  const { token, access_token, expires_in, expires_at, expiration, Expiration, expiry } = printed.data;
  const end = expires_at ?? expiration ?? Expiration ?? expiry;
  return accessToken(token ?? access_token, lifeFromSeconds(expires_in) ?? lifeUntil(end));
}
