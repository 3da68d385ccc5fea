// The key of `balance: affinity`: what requests have in common whose prompts begin alike, so that one target has their prefix cached.
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { foldPath } from '../../config/schema/body-rules.ts';
import { JsonScanner } from '../../wire/json/json.ts';
import { type FoundMembers, KEY_NAMES, PROMPT_NAMES } from '../routes/watched-members.ts';

/** Of the beginning of a prompt, and of its first message of a user. */
const PREFIX_BYTES = 1024;
/** Beyond it, the first message of a user is not searched for. */
const SEARCH_BYTES = 64 * 1024;
const MAX_NAME_BYTES = 1024;
const QUOTE = 0x22;
const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const USER = Buffer.from('"user"');

interface KeyedRequest {
  readonly headers: IncomingHttpHeaders;
  /** Name of the header with the session, in lower case. */
  readonly header: string;
  readonly holderId: string;
  readonly body: Buffer;
  /** `AFFINITY_MEMBERS` of the body; undefined for a form. */
  readonly members: FoundMembers | undefined;
}

/**
 * `prompt_cache_key`, else the header of the session, else `previous_response_id` or `conversation`, else the holder and the beginning
 * of the prompt.
 * @returns a digest; undefined where the request has none of them, as a form
 */
export function affinityKey({ headers, header, holderId, body, members }: KeyedRequest): string | undefined {
  const bytesOf = (name: string): Buffer | undefined => {
    const found = members?.get(foldPath(name));
    return found && body.subarray(found.valueStart, found.end);
  };
  const [cacheKey, ...ids] = KEY_NAMES.map((name) => nameIn(bytesOf(name)));
  if (cacheKey !== undefined) return digest('cache', cacheKey);
  const session = headers[header];
  if (typeof session === 'string' && session !== '') return digest('session', session);
  const id = ids.find((each) => each !== undefined);
  if (id !== undefined) return digest('id', id);
  const prompt = PROMPT_NAMES.map(bytesOf).find((bytes) => bytes !== undefined);
  return prompt && digest('prompt', holderId, ...beginning(prompt));
}

/** The parts of a prompt that stay while a conversation grows. */
function beginning(prompt: Buffer): readonly Buffer[] {
  const first = firstOfUser(prompt);
  const start = prompt.subarray(0, Math.min(PREFIX_BYTES, first?.end ?? prompt.length));
  return first === undefined
    ? [start]
    : [start, prompt.subarray(first.start, first.end).subarray(0, PREFIX_BYTES)];
}

/** The first message of a list whose role is `user`. */
function firstOfUser(prompt: Buffer): { readonly start: number; readonly end: number } | undefined {
  if (prompt[0] !== OPEN_ARRAY) return undefined;
  const scanner = new JsonScanner();
  scanner.reset(prompt, 0, Math.min(prompt.length, SEARCH_BYTES));
  if (!scanner.enterArray()) return undefined;
  while (scanner.nextElement()) {
    scanner.peek();
    const { pos: start } = scanner;
    let isUser = false;
    if (scanner.enterObject()) {
      while (scanner.nextMember()) {
        scanner.peek();
        const { pos } = scanner;
        const isRole = scanner.keyIs('role');
        if (!scanner.skipValue()) return undefined;
        isUser ||= isRole && USER.equals(prompt.subarray(pos, scanner.pos));
      }
    } else if (!scanner.skipValue()) return undefined;
    if (scanner.fault !== null) return undefined;
    if (isUser) return { start, end: scanner.pos };
  }
  return undefined;
}

/** A string that is not empty, or the `id` of an object. */
function nameIn(bytes: Buffer | undefined): Buffer | undefined {
  if (bytes === undefined || bytes.length > MAX_NAME_BYTES) return undefined;
  if (bytes[0] === QUOTE) return bytes.length > 2 ? bytes : undefined;
  if (bytes[0] !== OPEN_OBJECT) return undefined;
  const scanner = new JsonScanner();
  scanner.reset(bytes);
  if (!scanner.enterObject()) return undefined;
  while (scanner.nextMember()) {
    const isId = scanner.keyIs('id');
    const span = scanner.skipIf(QUOTE);
    if (isId && span !== null) return bytes.subarray(span.start, span.end);
  }
  return undefined;
}

/** @returns the same for the same parts, with every process and on every machine */
function digest(...parts: readonly (string | Buffer)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part).update('\0');
  return hash.digest('base64url');
}

/** The key of a `prompt_cache_key`, for reports. */
export const keyOfCacheKey = (text: string): string => digest('cache', JSON.stringify(text));
