// The 404 for an unknown path; suggests the nearest path for a wrong base URL or a typo.
import { nearest } from '../config/source/nearest.ts';
import { GatewayError } from '../errors.ts';

/** Paths that may be echoed: no encoding, not long, and no run of digits that could be a key. */
const PRINTABLE = /^(?!.*[0-9a-f]{32})[\w\-./:~]{1,128}$/i;

const OPENAI_BASE = "The base URL of an OpenAI client must end in '/v1' here, once.";
const ANTHROPIC_BASE = "The base URL of an Anthropic client must not have a path here; it adds '/v1' itself.";

/**
 * @param path as sent, without the query
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
  const intended = otherBases(path).find(isKnown);
  const near = intended ?? nearest(tidy(path), paths);
  const isBase = intended !== undefined && `${intended}/` !== path;
  const sentences = [
    `Unknown request URL: ${method} ${path}.`,
    ...(near === undefined ? [] : [`Did you mean ${near}?`]),
    ...(isBase ? [intended.startsWith('/v1/messages') ? ANTHROPIC_BASE : OPENAI_BASE] : []),
  ];
  return new GatewayError('unknown_url', sentences.join(' '));
}

/** Candidate paths that the client would have sent with another base URL. */
function otherBases(path: string): readonly string[] {
  const plain = tidy(path);
  const last = plain.lastIndexOf('/v1/');
  // What Anthropic's API has below its messages is not the other API's.
  const segments = plain.startsWith('/v1/messages/') ? [] : plain.split('/').slice(1);
  // Longest first: `/api/openai/chat/completions` means `/v1/chat/completions`, not `/v1/completions`.
  const suffixes = segments.map((_, index) => `/v1/${segments.slice(index).join('/')}`);
  return [plain, ...(last > 0 ? [plain.slice(last)] : []), ...suffixes];
}

/** Removes empty segments and a trailing slash. */
function tidy(path: string): string {
  return path.replaceAll(/\/{2,}/g, '/').replace(/(?<=.)\/$/, '');
}
