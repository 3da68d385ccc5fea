// A route of the API: who may call it, what it takes, what it answers. Validation, the OpenAPI document and the tests are made from it.
import { z } from 'zod';
import { GatewayError } from '../../errors.ts';
import type { SearchPage, SearchPosition } from '../../store/key-record.ts';
import type { Role } from '../../store/operator-record.ts';
import type { ConsoleDesk } from '../console-desk.ts';
import type { Operator } from '../console-identity.ts';

/** One call, validated. */
interface ApiCall<Query, Body> {
  readonly desk: ConsoleDesk;
  readonly operator: Operator;
  /** For histories: `operator:ann`. */
  readonly actor: string;
  /** Of the client. */
  readonly address: string;
  /** Segments of the path, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  readonly body: Body;
}

export type AnyCall = ApiCall<unknown, unknown>;
type Fields = z.ZodObject<z.ZodRawShape, z.core.$strict>;
type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';

export interface ApiRoute {
  readonly method: Method;
  /** Below `/api/v1`, such as `/keys/:prefix`. */
  readonly path: string;
  /** Name in events and in the document: `keys.revoke`. */
  readonly name: string;
  readonly role: Role;
  readonly about: string;
  readonly query: Fields;
  /** Undefined for a call without a body. */
  readonly body: Fields | undefined;
  readonly answer: z.ZodType;
  /** Forms of the parameters of the path. */
  readonly params: Readonly<Record<string, z.ZodString>>;
  /** The record that the call changes, before and after; undefined where there is none. */
  readonly record: ((call: Pick<AnyCall, 'desk' | 'params'>) => Promise<object | undefined>) | undefined;
  readonly run: (call: AnyCall) => Promise<object>;
  /** Members of the answer that are shown once: events and repeated answers have null. */
  readonly secrets: readonly string[];
  /** Whether `run` writes the events: then the call is not a change as others are. */
  readonly recordsItself: boolean;
  /** Maximum bytes of the body. */
  readonly maxBytes: number;
}

interface RouteSpec<Query extends Fields, Body extends Fields>
  extends Pick<ApiRoute, 'method' | 'path' | 'name' | 'role' | 'about' | 'answer'>,
    Partial<Pick<ApiRoute, 'params' | 'record' | 'secrets' | 'recordsItself' | 'maxBytes'>> {
  readonly query?: Query;
  readonly body?: Body;
  run(call: ApiCall<z.output<Query>, z.output<Body>>): Promise<object>;
}

const NONE = z.strictObject({});
const DEFAULTS = {
  query: NONE,
  body: undefined,
  params: {},
  record: undefined,
  secrets: [],
  recordsItself: false,
  maxBytes: 64 * 1024,
};

/** A call that reads, which every operator may, unless it says otherwise. */
export function reading<Query extends Fields = typeof NONE>({
  role = 'viewer',
  ...spec
}: Omit<RouteSpec<Query, typeof NONE>, 'method' | 'role' | 'body'> & { readonly role?: Role }): ApiRoute {
  return route({ method: 'GET', role, ...spec });
}

export function route<Query extends Fields = typeof NONE, Body extends Fields = typeof NONE>(
  spec: RouteSpec<Query, Body>,
): ApiRoute {
  return {
    ...DEFAULTS,
    ...spec,
    // The server parses both by these schemas before it calls.
    run: (call) =>
      spec.run({ ...call, query: call.query as z.output<Query>, body: call.body as z.output<Body> }),
  };
}

const MAX_ITEMS = 500;
const ITEMS = 50;

/** Query of a list: at most `limit` items, from behind `cursor`. */
export const PAGE = {
  limit: z.coerce.number().int().min(1).max(MAX_ITEMS).default(ITEMS).describe('Maximum number of items.'),
  cursor: z.string().max(2000).optional().describe('`next_cursor` of the page before.'),
};

/** The answer of a list. */
export function pageOf(item: z.ZodType) {
  return z.strictObject({
    items: z.array(item),
    next_cursor: z
      .string()
      .nullable()
      .describe(
        'For the next page; null on the last one. A page of a search may have fewer than `limit` items, or none, before the last one.',
      ),
  });
}

/**
 * One page of a list.
 * @param form what a cursor has
 * @param read items behind the cursor; one more than a page tells whether there is another
 * @param cursorOf the cursor behind an item
 * @throws GatewayError `invalid_value` for a cursor that is none of this list
 */
export async function readPage<Item, Cursor, Shown extends object>(
  { limit, cursor }: { readonly limit: number; readonly cursor?: string | undefined },
  form: z.ZodType<Cursor>,
  read: (limit: number, after: Cursor | undefined) => Promise<readonly Item[]>,
  cursorOf: (item: Item) => Cursor,
  shown: (item: Item) => Shown,
) {
  const found = await read(limit + 1, cursor === undefined ? undefined : cursorFrom(form, cursor));
  const items = found.slice(0, limit);
  const last = items.at(-1);
  const isLast = found.length <= limit || last === undefined;
  return { items: items.map(shown), next_cursor: isLast ? null : cursorText(cursorOf(last)) };
}

const position = z.array(z.union([z.string().regex(/^[^\0]*$/), z.int()])).min(1);

/**
 * One page of a search, which may end before it is full.
 * @throws GatewayError `invalid_value` for a cursor that is none of this list
 */
export async function readSearch<Item, Shown extends object>(
  { limit, cursor }: { readonly limit: number; readonly cursor?: string | undefined },
  read: (limit: number, after: SearchPosition | undefined) => Promise<SearchPage<Item>>,
  shown: (item: Item) => Shown,
) {
  const { items, next } = await read(limit, cursor === undefined ? undefined : cursorFrom(position, cursor));
  return { items: items.map(shown), next_cursor: next === undefined ? null : cursorText(next) };
}

const cursorText = (cursor: unknown) => Buffer.from(JSON.stringify(cursor)).toString('base64url');

function cursorFrom<Cursor>(form: z.ZodType<Cursor>, text: string): Cursor {
  try {
    return form.parse(JSON.parse(Buffer.from(text, 'base64url').toString()));
  } catch (cause) {
    throw new GatewayError('invalid_value', 'The cursor is not one of this list.', {
      param: 'cursor',
      cause,
    });
  }
}

/** Forms of what identifies records in paths. */
export const PREFIX = z
  .string()
  .regex(/^[0-9a-f]{8}$/, 'must be the prefix of a key: its first 8 characters');
export const HOLDER = z
  .string()
  .regex(
    /^(?:[0-9a-f]{8}|[0-9a-f]{8}-[0-9a-f-]{27})$/,
    'must be the id of a holder, or the prefix of one of its keys',
  );
export const NAME = z
  .string()
  .min(1)
  .max(200)
  .regex(/^[^\0]*$/, 'must not have a NUL character');

/** @throws GatewayError `record_not_found` */
export function requireRecord<Found extends object>(what: string, record: Found | undefined): Found {
  if (record !== undefined) return record;
  throw new GatewayError('record_not_found', `There is no such ${what}.`);
}
