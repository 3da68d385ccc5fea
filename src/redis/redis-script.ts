// Lua scripts in Redis.
import { createHash } from 'node:crypto';
import { classifyError } from './redis-fault.ts';
import type { RedisCommands } from './redis-link.ts';

export interface ScriptOptions {
  /** For error messages; it is not sent. */
  readonly name: string;
  readonly lua: string;
  /** Absent: it varies, and all of them have one hash tag. */
  readonly keys?: number;
  /** Strings of the result are buffers. */
  readonly isBinary?: boolean;
}

/**
 * Runs a script as one call of `run`, with the same errors. The caller validates the result: Lua's `nil` and `false`
 * become null, `true` becomes 1, numbers become integers.
 */
export type RedisScript = (
  keys: readonly string[],
  args?: readonly (string | number | Buffer)[],
) => Promise<unknown>;

/**
 * A Lua script, sent with EVALSHA, and with EVAL when it is not in Redis's script cache.
 * @param run as `RedisClient.run`
 */
export function redisScript(
  run: (work: (redis: RedisCommands) => Promise<unknown>) => Promise<unknown>,
  { name, lua, keys: count, isBinary = false }: ScriptOptions,
): RedisScript {
  const digest = createHash('sha1').update(lua).digest('hex');
  return async (keys, args = []) => {
    if (count !== undefined && keys.length !== count)
      throw new TypeError(`the script ${name} takes ${count} keys`);
    const send = (redis: RedisCommands, command: 'eval' | 'evalsha', script: string) => {
      const all = [script, keys.length, ...keys, ...args];
      return isBinary ? redis.callBuffer(command, all) : redis.call(command, all);
    };
    return await run(async (redis) => {
      try {
        return await send(redis, 'evalsha', digest);
      } catch (error) {
        const verdict = classifyError(error);
        // NOSCRIPT means that it has not run, so this is not a retry.
        if (verdict.kind !== 'command' || verdict.error.code !== 'NOSCRIPT') throw error;
        return await send(redis, 'eval', lua);
      }
    });
  };
}
