// Paths at an upstream, and the client's query joined to the operator's. A client cannot repeat a parameter of the operator, in any
// spelling that a parser may read as the same name.
import type { UpstreamConfig } from '../config/schema/config-schema.ts';
import { plainName } from '../wire/json/json-bytes.ts';

/** Levels of nested percent-encoding that a parser may decode. */
const MAX_DECODINGS = 3;

/**
 * Appends the client's query byte for byte, except that parameters of the path are dropped, and `;`, which some parsers treat as
 * a separator, is encoded.
 * @param path with the operator's query, if any
 * @param query the client's, without its `?`
 */
export function joinQuery(path: string, query: string): string {
  if (query === '') return path;
  const at = path.indexOf('?');
  const own = at === -1 ? [] : path.slice(at + 1).split(/[&;]/);
  const reserved = new Set(own.map((piece) => plainName(nameOf(piece))));
  // A name without letters and digits reserves nothing.
  reserved.delete('');
  const pieces = query.replaceAll(';', '%3B').split('&');
  const added = pieces.filter((piece) => piece !== '' && !isParameter(piece, reserved));
  if (added.length === 0) return path;
  return `${path}${at === -1 ? '?' : '&'}${added.join('&')}`;
}

/**
 * Whether a query piece sets one of these parameters in any spelling that a parser may accept: any case (also the long s and the Kelvin
 * sign), `_`, `-`, dots and blanks ignored, percent-encoded up to three times, as a list or a member (`a[]`, `a[0]`, `a.b`), cut at an
 * encoded U+0000 or `;`.
 * @param piece the text between two `&`
 * @param names in lower case, letters and digits only
 */
export function isParameter(piece: string, names: ReadonlySet<string>): boolean {
  if (names.size === 0) return false;
  const name = nameOf(piece);
  return (
    names.has(plainName(name)) || (name.includes('.') && names.has(plainName(name.split('.', 1)[0] ?? '')))
  );
}

function nameOf(piece: string): string {
  const [written = ''] = piece.split('=', 1);
  const [text = ''] = decoded(written).split(/[\0;=]/, 1);
  return text.trimStart().split('[', 1)[0] ?? '';
}

/** Form decoding. Invalid encodings stay as they are, as parsers leave them. */
function decoded(text: string): string {
  let last = text.replaceAll('+', ' ');
  for (let i = 0; i < MAX_DECODINGS && last.includes('%'); i += 1) {
    const next = last.replace(/(?:%[\da-f]{2})+/gi, (found) =>
      Buffer.from(found.replaceAll('%', ''), 'hex').toString(),
    );
    if (next === last) break;
    last = next;
  }
  return last;
}

/**
 * Joins an API root and an endpoint with one slash; keeps the root's query and appends the configured parameters.
 * @param baseUrl API root, with or without a trailing slash, e.g. `https://host/v1?x=1`
 * @param suffix path of the endpoint below the root, without a leading slash
 */
export function endpoint(
  baseUrl: string,
  suffix: string,
  query: Readonly<Record<string, string>>,
): { origin: string; path: string } {
  const url = new URL(baseUrl);
  const isBeside = suffix.startsWith('/');
  const root = url.pathname.replace(isBeside ? /(?:\/v1)?\/*$/ : /\/+$/, '');
  // Appended, because setting one parameter re-encodes the others.
  const added = new URLSearchParams({ ...query }).toString();
  const search = [url.search.slice(1), added].filter((part) => part !== '').join('&');
  return {
    origin: url.origin,
    path: `${root}${isBeside ? '' : '/'}${suffix}${search === '' ? '' : `?${search}`}`,
  };
}

/** The paths of one configured upstream. */
export class UpstreamPaths {
  readonly #config: UpstreamConfig;
  /** By suffix; there are few. */
  readonly #paths = new Map<string, string>();

  constructor(config: UpstreamConfig) {
    this.#config = config;
  }

  /** Path and configured query. @param suffix below the API root, without a leading slash */
  of(suffix: string): string {
    let path = this.#paths.get(suffix);
    if (path === undefined) {
      path = this.#make(suffix);
      this.#paths.set(suffix, path);
    }
    return path;
  }

  /** As `of` for a suffix that a request makes, with the client's query (`joinQuery`). */
  with(suffix: string, query: string): string {
    return joinQuery(this.#make(suffix), query);
  }

  #make(suffix: string): string {
    const config = this.#config;
    return config.kind === 'builtin'
      ? `/${suffix.replace(/^\//, '')}`
      : endpoint(config.base_url, suffix, config.query).path;
  }
}
