// What of a new configuration can be put to work in a process that runs under an older one. The rest it keeps from its
// start, and says by name.
import { isDeepStrictEqual } from 'node:util';
import { hashOf } from './config-hash.ts';
import { httpUrl } from './schema/addresses.ts';
import type { Config, StaticConfig } from './schema/config-schema.ts';

interface ReloadableConfig {
  /** The static part of the running one with the dynamic part of the new one; its hash is that of this combination. */
  readonly config: Config;
  /** Fields of the new file that wait for a restart, such as `listen.port`; sorted. Never their values. */
  readonly pending: readonly string[];
}

/**
 * The dynamic part is taken as a whole and the static one not at all: the two do not refer to each other, and what is urgent
 * (a credential, a target that fails) must not wait because somebody also changed a port.
 */
export function reloadableConfig(running: Config, next: Config): ReloadableConfig {
  const pending = differences(running.static, next.static);
  if (pending.length === 0) return { config: next, pending };
  const fixed = running.static;
  const urlOf = ({ listen }: StaticConfig) => httpUrl(listen.host, listen.port);
  // Where the address was not given it follows the listener, which stays where it is.
  const public_url = next.dynamic.public_url === urlOf(next.static) ? urlOf(fixed) : next.dynamic.public_url;
  const meaning = { static: fixed, dynamic: { ...next.dynamic, public_url } };
  return { config: { ...next, ...meaning, hash: hashOf(meaning) }, pending };
}

/** Sections are compared field by field; a connection string or a list is one field. */
function differences(running: StaticConfig, next: StaticConfig): string[] {
  const found = new Set<string>();
  for (const [field, [before, after]] of pairs(running, next)) {
    const isSection = SECTIONS.has(field) && isRecord(before) && isRecord(after);
    if (!isSection) {
      if (!isDeepStrictEqual(before, after)) found.add(field);
      continue;
    }
    for (const [inner, [a, b]] of pairs(before, after)) {
      if (!isDeepStrictEqual(a, b)) found.add(`${field}.${inner}`);
    }
  }
  return [...found].sort();
}

const SECTIONS: ReadonlySet<string> = new Set(['listen', 'admin', 'usage']);

function pairs(a: object, b: object): [string, [unknown, unknown]][] {
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].map((name) => [name, [Reflect.get(a, name), Reflect.get(b, name)]]);
}

function isRecord(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
