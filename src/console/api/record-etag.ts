// Tells whether a record has changed since somebody read it, and which of its members: the tag has a short digest of each.
import { hash } from 'node:crypto';

/** What changes by itself, or with other records. */
const VOLATILE = new Set([
  'last_used',
  'events',
  'orders',
  'keys',
  'version',
  'in_flight',
  'last_failure',
  'targets',
  'credential',
  'health',
  'state_since',
]);
const DIGEST_LENGTH = 8;

interface ChangedField {
  readonly field: string;
  /** Its value now. */
  readonly now: unknown;
  /** What the request would have set; absent where it says nothing of the member. */
  readonly yours?: unknown;
}

/** @returns `"name:1a2b3c4d,tier:5e6f7a8b"` */
export function etagOf(record: object): string {
  return `"${[...digestsOf(record)].map(([name, digest]) => `${name}:${digest}`).join(',')}"`;
}

/**
 * @param tag from `etagOf` of the record as it was read; any other text differs in everything
 * @param wanted what the request sets
 * @returns the members that are different now
 */
export function differenceFrom(tag: string, record: object, wanted: unknown): readonly ChangedField[] {
  const read = new Map(
    tag
      .replaceAll(/^(?:W\/)?"|"$/g, '')
      .split(',')
      .map((pair): [string, string] => {
        const at = pair.lastIndexOf(':');
        return [pair.slice(0, at), pair.slice(at + 1)];
      }),
  );
  const changes = typeof wanted === 'object' && wanted !== null ? wanted : {};
  return [...digestsOf(record)].flatMap(([field, digest]) => {
    if (read.get(field) === digest) return [];
    const now: unknown = Reflect.get(record, field);
    return [
      Object.hasOwn(changes, field) ? { field, now, yours: Reflect.get(changes, field) } : { field, now },
    ];
  });
}

function digestsOf(record: object): ReadonlyMap<string, string> {
  const members = Object.entries(record).filter(([name]) => !VOLATILE.has(name));
  const digestOf = (value: unknown) => hash('sha256', JSON.stringify(value) ?? '').slice(0, DIGEST_LENGTH);
  return new Map(members.map(([name, value]) => [name, digestOf(value)]));
}
