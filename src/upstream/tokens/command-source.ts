// Tokens that a program prints, as kubectl's exec plugins and the `credential_process` of AWS do.
import { execFile } from 'node:child_process';
import { z } from 'zod';
import type { UpstreamAuth } from '../../config/schema/config-schema.ts';
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

export class CommandSource implements TokenSource {
  readonly #config: Command;
  readonly #env: NodeJS.ProcessEnv;

  /** @param env of this process */
  constructor(config: Command, env: NodeJS.ProcessEnv = process.env) {
    this.#config = config;
    this.#env = {
      ...Object.fromEntries(PASSED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]]))),
      ...config.env,
    };
  }

  async fetch(signal: AbortSignal): Promise<AccessToken> {
    return readPrinted(await this.#run(signal));
  }

  /** No shell: the arguments are passed as they are. */
  #run(signal: AbortSignal): Promise<string> {
    const [program = '', ...words] = this.#config.run;
    return new Promise((resolve, reject) => {
      const options = { env: this.#env, signal, killSignal: 'SIGKILL', maxBuffer: MAX_OUTPUT } as const;
      const child = execFile(program, words, options, (error, stdout) => {
        // Its texts may hold a credential, so the error names only how it ended.
        if (error === null) resolve(stdout);
        else reject(new TokenError(failureOf(error)));
      });
      child.stdin?.end();
    });
  }
}

function failureOf(error: {
  readonly code?: string | number | null;
  readonly signal?: string | null;
}): string {
  const { code, signal } = error;
  if (code === 'ENOENT') return 'the program of `auth.command` does not exist';
  if (code === 'EACCES') return 'the program of `auth.command` may not be executed';
  if (code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER')
    return 'the program of `auth.command` printed more than 64 KiB';
  if (code === 'ABORT_ERR') return 'the program of `auth.command` did not end in time';
  return typeof code === 'number'
    ? `the program of \`auth.command\` ended with ${code}; run it by hand to see why`
    : `the program of \`auth.command\` ended by ${signal ?? code ?? 'an unknown cause'}`;
}

/** @throws TokenError */
export function readPrinted(text: string, now = Date.now()): AccessToken {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new TokenError('the program of `auth.command` did not print JSON');
  }
  const exec = ExecCredential.safeParse(json);
  if (exec.success) {
    const { token, expirationTimestamp } = exec.data.status;
    return accessToken(token, lifeUntil(expirationTimestamp, now), now);
  }
  const printed = Printed.safeParse(json);
  if (!printed.success) throw new TokenError('the program of `auth.command` did not print a JSON object');
  const { token, access_token, expires_in, expires_at, expiration, Expiration, expiry } = printed.data;
  const end = expires_at ?? expiration ?? Expiration ?? expiry;
  return accessToken(token ?? access_token, lifeFromSeconds(expires_in) ?? lifeUntil(end, now), now);
}
