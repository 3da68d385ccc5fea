// `tollgate check --credentials`: fetches the token of each upstream with `auth` once, and says what came of it.
import type { Writable } from 'node:stream';
import { loadConfig } from '../config/load-config.ts';
import { formatDuration } from '../config/schema/units.ts';
import { Outbound } from '../upstream/outbound/outbound.ts';
import { createTokenSource } from '../upstream/tokens/create-source.ts';
import { fetchInTime } from '../upstream/tokens/renewed-token.ts';

/**
 * @param file a valid configuration
 * @returns the exit code: 1 when a token could not be fetched
 */
export async function tryCredentials(
  file: string,
  env: NodeJS.ProcessEnv,
  { stdout, stderr }: { readonly stdout: Writable; readonly stderr: Writable },
): Promise<number> {
  const { upstreams } = loadConfig(file, env).dynamic;
  const tried = await Promise.all(
    Object.entries(upstreams).flatMap(([name, upstream]) => {
      if (upstream.kind === 'builtin' || upstream.auth === undefined) return [];
      const { auth } = upstream;
      return [
        fetchInTime(createTokenSource(auth, new Outbound(upstream.outbound))).then(
          ({ expiresAt }) => {
            const left = formatDuration(Math.max(1000, Math.round((expiresAt - Date.now()) / 1000) * 1000));
            stdout.write(`upstream ${name}: got a token by ${auth.kind}, which expires in ${left}\n`);
            return true;
          },
          (error: unknown) => {
            const why = error instanceof Error ? error.message : String(error);
            stderr.write(`upstream ${name}: got no token by ${auth.kind}: ${why}\n`);
            return false;
          },
        ),
      ];
    }),
  );
  if (tried.length === 0) stdout.write('no upstream has `auth`, so there is no token to fetch\n');
  return tried.every(Boolean) ? 0 : 1;
}
