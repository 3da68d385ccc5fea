// Lists of a holder's objects at an upstream. They are made from the gateway's records, and each object is requested by its id: a page of
// the upstream's own list, which has the objects of all holders, may contain none of this one.
import { GatewayError } from '../errors.ts';
import { RecentMap } from '../recent-map.ts';
import type { ObjectQuery } from '../store/object-record.ts';
import { memberOf } from '../wire/error-answer.ts';

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 100;
/** Concurrent requests for objects. */
const AT_ONCE = 4;
/**
 * An object has to be gone for so long before a list forgets it: a wrong credential or a fault of the vendor makes objects look gone
 * that still exist.
 */
const LONG_MS = 3_600_000;
/** An object that is gone is not requested again for so long. */
const AGAIN_MS = 60_000;
const MAX_GONE = 10_000;

/** The query of a list, in OpenAI's form. */
export type ListQuery = Pick<ObjectQuery, 'order' | 'limit' | 'after' | 'before' | 'purpose'>;

/** @throws GatewayError invalid_value */
export function readListQuery(search: string): ListQuery {
  const given = new URLSearchParams(search);
  const limit = given.get('limit') ?? String(DEFAULT_LIMIT);
  if (!/^[1-9]\d{0,8}$/.test(limit)) throw wrong('limit');
  const order = given.get('order') ?? 'desc';
  if (order !== 'asc' && order !== 'desc') throw wrong('order');
  const [after, before, purpose] = ['after', 'before', 'purpose'].map((name) => given.get(name) ?? undefined);
  return {
    order,
    limit: Math.min(Number(limit), MAX_LIMIT),
    after,
    before,
    purpose,
  };
}

function wrong(param: string): GatewayError {
  return new GatewayError('invalid_value', `The parameter ${param} has a value that is not allowed.`, {
    param,
  });
}

interface ListSource {
  /** Ids of the holder's objects, in order. */
  page(query: ListQuery): Promise<readonly string[]>;
  /** The object at the upstream; undefined if it no longer exists. */
  object(id: string): Promise<Buffer | undefined>;
  /** Records that the object no longer exists. */
  ended(id: string): Promise<void>;
}

/** Objects of lists that were gone when they were requested. */
export class GoneObjects {
  readonly #clock: () => number;
  /** When it was gone first and last. */
  readonly #seen = new RecentMap<string, { readonly since: number; readonly at: number }>(MAX_GONE);

  /** @param clock milliseconds. Default: monotonic */
  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  /** @returns the object; undefined if it is gone */
  async read(id: string, { object, ended }: ListSource): Promise<Buffer | undefined> {
    const known = this.#seen.get(id);
    if (known !== undefined && this.#clock() < known.at + AGAIN_MS) return undefined;
    const bytes = await object(id);
    if (bytes !== undefined) {
      this.#seen.delete(id);
      return bytes;
    }
    const at = this.#clock();
    const since = known?.since ?? at;
    if (at < since + LONG_MS && this.#seen.size < MAX_GONE) this.#seen.set(id, { since, at });
    else {
      this.#seen.delete(id);
      await ended(id);
    }
    return undefined;
  }
}

/**
 * The list for the client, with each object byte for byte as the upstream returned it. Objects that no longer exist are left out and do
 * not count.
 */
export async function makeList(query: ListQuery, source: ListSource, gone: GoneObjects): Promise<Buffer> {
  const found: { id: string; bytes: Buffer }[] = [];
  const isBackward = query.after === undefined && query.before !== undefined;
  let mark = isBackward ? query.before : query.after;
  let hasMore = true;
  while (hasMore && found.length < query.limit) {
    const { after: _after, before: _before, ...rest } = query;
    const limit = query.limit - found.length;
    const place = mark === undefined ? {} : isBackward ? { before: mark } : { after: mark };
    // One more than shown, for `has_more`.
    const ids = await source.page({ ...rest, ...place, limit: limit + 1 });
    hasMore = ids.length > limit;
    const shown = isBackward ? ids.slice(-limit) : ids.slice(0, limit);
    const objects = await each(shown, (id) => gone.read(id, source));
    const present = shown.flatMap((id, index) => {
      const bytes = objects[index];
      return bytes === undefined ? [] : [{ id, bytes }];
    });
    if (isBackward) found.unshift(...present);
    else found.push(...present);
    mark = (isBackward ? shown[0] : shown.at(-1)) ?? mark;
    if (shown.length === 0) break;
  }
  const ids = [found[0]?.id ?? null, found.at(-1)?.id ?? null].map((id) => JSON.stringify(id));
  const tail = `],"first_id":${ids[0]},"last_id":${ids[1]},"has_more":${hasMore}}`;
  const parts: Buffer[] = [Buffer.from('{"object":"list","data":[')];
  for (const [index, { bytes }] of found.entries()) parts.push(Buffer.from(index === 0 ? '' : ','), bytes);
  return Buffer.concat([...parts, Buffer.from(tail)]);
}

/** Requests all objects in order, `AT_ONCE` at a time. */
async function each<T>(ids: readonly string[], ask: (id: string) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  while (results.length < ids.length) {
    const next = ids.slice(results.length, results.length + AT_ONCE);
    results.push(...(await Promise.all(next.map(ask))));
  }
  return results;
}

/** @throws GatewayError upstream_invalid_response */
export function parseAnswer(bytes: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    if (typeof value !== 'object' || value === null) throw new TypeError('no object');
    if ((memberOf(value, 'error') ?? null) !== null) throw new TypeError('an error with a good status');
    return value;
  } catch (cause) {
    throw new GatewayError('upstream_invalid_response', undefined, { cause });
  }
}
