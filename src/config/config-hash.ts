// The hash of a configuration's meaning: equal on two replicas exactly when they behave the same.
import { hash } from 'node:crypto';
import type { DynamicConfig, StaticConfig } from './schema/config-schema.ts';

/** The meaning of a file, without its name and warnings. */
export interface Meaning {
  readonly static: StaticConfig;
  readonly dynamic: DynamicConfig;
}

/** Key order does not change the meaning; list order does. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) =>
    inner !== null && typeof inner === 'object' && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

/** 12 hexadecimal digits. */
export function hashOf({ static: fixed, dynamic }: Meaning): string {
  return hash('sha256', canonical({ static: fixed, dynamic })).slice(0, 12);
}
