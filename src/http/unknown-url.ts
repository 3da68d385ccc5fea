// The 404 for a path that is not one of the gateway: it names the path, and the nearest right one where a base URL or a letter is wrong.
import { nearest } from '../config/schema/nearest.ts';
import { GatewayError } from '../errors.ts';

/** What a message repeats of a client's path: no encoding, nothing long, and no run of digits that could be a key. */
const PRINTABLE = /^(?!.*[0-9a-f]{32})[\w\-./:~]{1,128}$/i;

/**
 * @param path as it was sent, without its query
 * @param isKnown whether a path has a handler
 * @param paths all paths with a handler
 */
export function unknownUrl(
  method: string,
  path: string,
  isKnown: (path: string) => boolean,
  paths: Iterable<string>,
): GatewayError {
  if (!PRINTABLE.test(path)) return new GatewayError('unknown_url');
  const meant = otherBases(path).find(isKnown);
  const near = meant ?? nearest(tidy(path), paths);
  const isBase = meant !== undefined && `${meant}/` !== path;
  const words = [
    `Unknown request URL: ${method} ${path}.`,
    ...(near === undefined ? [] : [`Did you mean ${near}?`]),
    ...(isBase ? ["The base URL of an OpenAI client has to end in '/v1' here, once."] : []),
  ];
  return new GatewayError('unknown_url', words.join(' '));
}

/** The paths that a client with another base URL would have sent. */
function otherBases(path: string): readonly string[] {
  const plain = tidy(path);
  const last = plain.lastIndexOf('/v1/');
  const segments = plain.split('/').slice(1);
  // From the longest: `/api/openai/chat/completions` is `/v1/chat/completions`, and not `/v1/completions`.
  const ends = segments.map((_, index) => `/v1/${segments.slice(index).join('/')}`);
  return [plain, ...(last > 0 ? [plain.slice(last)] : []), ...ends];
}

/** Without empty segments and a slash at the end. */
function tidy(path: string): string {
  return path.replaceAll(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
}
