// Lists of what a holder has at an upstream. They are made from what the gateway has recorded, and each object is asked for by
// its id: an upstream's own list is of everybody, and a page of it may hold nothing of this holder's.
import { GatewayError } from '../errors.ts';
import { memberOf } from '../upstream/error-outcome.ts';

const USUAL = 20;
const MOST = 100;
/** Objects that are asked for at the same time. */
const AT_ONCE = 4;

/** What a list is asked for, as OpenAI's lists are. */
export interface ListQuery {
  readonly order: 'asc' | 'desc';
  readonly limit: number;
  readonly after?: string;
  readonly before?: string;
  readonly purpose?: string;
}

/** @throws GatewayError invalid_value */
export function readListQuery(search: string): ListQuery {
  const given = new URLSearchParams(search);
  const limit = given.get('limit') ?? String(USUAL);
  if (!/^[1-9]\d{0,8}$/.test(limit)) throw wrong('limit');
  const order = given.get('order') ?? 'desc';
  if (order !== 'asc' && order !== 'desc') throw wrong('order');
  const [after, before, purpose] = ['after', 'before', 'purpose'].map((name) => given.get(name) ?? undefined);
  return {
    order,
    // More than one page holds is told by `has_more`.
    limit: Math.min(Number(limit), MOST),
    ...(after === undefined ? {} : { after }),
    ...(before === undefined ? {} : { before }),
    ...(purpose === undefined ? {} : { purpose }),
  };
}

function wrong(param: string): GatewayError {
  return new GatewayError('invalid_value', `The parameter ${param} has a value that is not allowed.`, {
    param,
  });
}

interface ListSource {
  /** Ids of the holder's, in order. */
  page(query: ListQuery): Promise<readonly string[]>;
  /** The object as the upstream has it now; undefined when it has it no more. */
  object(id: string): Promise<Buffer | undefined>;
  /** It is gone. */
  ended(id: string): Promise<void>;
}

/**
 * The list as the client reads it, each object byte for byte as the upstream gave it. What the upstream has no more takes no
 * place in it.
 */
export async function makeList(query: ListQuery, source: ListSource): Promise<Buffer> {
  const found: { id: string; bytes: Buffer }[] = [];
  const isBackward = query.after === undefined && query.before !== undefined;
  let mark = isBackward ? query.before : query.after;
  let hasMore = true;
  while (hasMore && found.length < query.limit) {
    const { after: _after, before: _before, ...rest } = query;
    const limit = query.limit - found.length;
    const place = mark === undefined ? {} : isBackward ? { before: mark } : { after: mark };
    // One more than is shown tells whether there is more.
    const ids = await source.page({ ...rest, ...place, limit: limit + 1 });
    hasMore = ids.length > limit;
    const shown = isBackward ? ids.slice(-limit) : ids.slice(0, limit);
    const objects = await each(shown, (id) => source.object(id));
    const present = shown.flatMap((id, index) => {
      const bytes = objects[index];
      return bytes === undefined ? [] : [{ id, bytes }];
    });
    if (isBackward) found.unshift(...present);
    else found.push(...present);
    mark = (isBackward ? shown[0] : shown.at(-1)) ?? mark;
    for (const [index, id] of shown.entries()) if (objects[index] === undefined) await source.ended(id);
    if (shown.length === 0) break;
  }
  const ids = [found[0]?.id ?? null, found.at(-1)?.id ?? null].map((id) => JSON.stringify(id));
  const tail = `],"first_id":${ids[0]},"last_id":${ids[1]},"has_more":${hasMore}}`;
  const parts: Buffer[] = [Buffer.from('{"object":"list","data":[')];
  for (const [index, { bytes }] of found.entries()) parts.push(Buffer.from(index === 0 ? '' : ','), bytes);
  return Buffer.concat([...parts, Buffer.from(tail)]);
}

/** In order, a few at a time. */
async function each<T>(ids: readonly string[], ask: (id: string) => Promise<T>): Promise<(T | undefined)[]> {
  const results: (T | undefined)[] = new Array(ids.length).fill(undefined);
  const waiting = [...ids.entries()];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      results[next[0]] = await ask(next[1]);
    }
  };
  const workers = Array.from({ length: Math.min(AT_ONCE, ids.length) }, work);
  // One that fails ends the others before they ask again.
  await Promise.all(workers).catch((error: unknown) => {
    waiting.length = 0;
    throw error;
  });
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
