// Questions of commands to the admin listener of a running gateway.
import { Pool } from 'undici';
import type { z } from 'zod';
import { httpUrl } from '../config/schema/addresses.ts';
import type { StaticConfig } from '../config/schema/config-schema.ts';

/** In bytes. Far above the largest possible list of states. */
const MAX_RESPONSE = 2 ** 23;

/** URL of the admin listener; null when `admin.port` is 0. */
export function adminUrl({ host, port }: StaticConfig['admin']): string | null {
  // The unspecified addresses are for listening; connect to loopback instead.
  return port === 0 ? null : httpUrl({ '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host, port);
}

/** @returns the answer; undefined where none of this form comes within `timeoutMs` milliseconds */
export async function askAdmin<T>(
  admin: StaticConfig['admin'],
  path: string,
  schema: z.ZodType<T>,
  timeoutMs: number,
): Promise<T | undefined> {
  const url = adminUrl(admin);
  if (url === null) return undefined;
  const pool = new Pool(url, { connections: 1, maxResponseSize: MAX_RESPONSE });
  try {
    const { body } = await pool.request({ method: 'GET', path, signal: AbortSignal.timeout(timeoutMs) });
    return schema.safeParse(await body.json()).data;
  } catch {
    return undefined;
  } finally {
    await pool.destroy();
  }
}
