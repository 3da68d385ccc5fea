// Merges a new configuration into a running one: the dynamic part reloads, the static part stays until a restart.
import { isDeepStrictEqual } from 'node:util';
import { hashOf } from './config-hash.ts';
import { httpUrl } from './schema/addresses.ts';
import type { Config, StaticConfig } from './schema/config-schema.ts';

interface ReloadableConfig {
  /** The running static part with the new dynamic part, and the hash of this combination. */
  readonly config: Config;
  /** Changed fields that need a restart, such as `listen.port`; sorted, without values. */
  readonly pending: readonly string[];
}

/**
 * Takes the whole dynamic part and nothing of the static one. The two do not refer to each other, and an urgent change (a
 * credential, a failing target) must not wait because a port changed too.
 */
export function reloadableConfig(running: Config, next: Config): ReloadableConfig {
  const pending = differences(running.static, next.static);
  if (pending.length === 0) return { config: next, pending };
  const fixed = running.static;
  const urlOf = ({ listen }: StaticConfig) => httpUrl(listen.host, listen.port, listen.tls);
  // The default `public_url` follows the listener, which does not move.
  const public_url = next.dynamic.public_url === urlOf(next.static) ? urlOf(fixed) : next.dynamic.public_url;
  const { certificate: _pair, admin_certificate: _adminPair, ...others } = next.dynamic;
  // A listener that stays with TLS, or without it, keeps its pair or has none.
  const { certificate } = (fixed.listen.tls === next.static.listen.tls ? next : running).dynamic;
  const { admin_certificate } = (fixed.admin.tls === next.static.admin.tls ? next : running).dynamic;
  const dynamic = {
    ...others,
    public_url,
    ...(certificate === undefined ? {} : { certificate }),
    ...(admin_certificate === undefined ? {} : { admin_certificate }),
  };
  const meaning = { static: fixed, dynamic };
  return { config: { ...next, ...meaning, hash: hashOf(meaning) }, pending };
}

/** Compares sections field by field; a connection string or a list counts as one field. */
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
