// The query of a client's request as it goes to an upstream, behind what the operator sets there. A client cannot set a parameter
// of the operator's a second time, in any spelling that some reader takes for the same name.
import { plainName } from '../wire/fold-name.ts';

/** How often an encoding may stand in another one and be read by somebody. */
const MAX_DECODINGS = 3;

/**
 * Path and query with a client's query behind it, byte for byte, but for two things: a parameter that means one of the path's is
 * left out, and `;`, at which some readers split, is encoded.
 * @param path with the operator's query, if there is one
 * @param query the client's, without its `?`
 */
export function joinQuery(path: string, query: string): string {
  if (query === '') return path;
  const at = path.indexOf('?');
  const own = at === -1 ? [] : path.slice(at + 1).split(/[&;]/);
  const taken = new Set(own.map((piece) => plainName(nameOf(piece))));
  // A name without letters and digits is no operator's.
  taken.delete('');
  const pieces = query.replaceAll(';', '%3B').split('&');
  const rest = pieces.filter((piece) => piece !== '' && !isParameter(piece, taken));
  if (rest.length === 0) return path;
  return `${path}${at === -1 ? '?' : '&'}${rest.join('&')}`;
}

/**
 * Whether a parameter is one of these, in any spelling that some reader takes for the same: letters of either case (also the long s and
 * the Kelvin sign), `_`, `-`, dots and blanks ignored, encoded once or several times, as a list or a member (`a[]`, `a[0]`, `a.b`), up
 * to an encoded U+0000 or `;`.
 * @param piece of a query, between two `&`
 * @param names in lower case, of letters and digits alone
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

/** As forms are encoded. What is no encoding stays as it is, as readers leave it. */
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
