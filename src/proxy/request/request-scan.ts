// Reading and editing of request bodies: spans are found and spliced, without parsing into objects and serializing again. The
// pipeline resolves the model; the upstream interprets all else.
import { GatewayError } from '../../errors.ts';
import { LARGE_BODY } from '../../http/pieces/body-buffer.ts';
import { BodyPieces } from '../../http/pieces/body-pieces.ts';
import { RecentMap } from '../../recent-map.ts';
import { decodeString, JsonScanner, type Span } from '../../wire/json/json.ts';
import { checkEncoding } from '../../wire/json/json-text.ts';
import { type RequestScan, type Wanted, wants } from './request-members.ts';
import { RequestReader } from './request-reader.ts';

/** Bytes that replace a span; an empty span is an insertion. */
export interface Edit {
  readonly span: Span;
  readonly bytes: Buffer;
}

/** First bytes of values. */
const QUOTE = 0x22;
const LETTER_F = 0x66;
const LETTER_T = 0x74;

const MAX_TEXT = 64 * 1024;
const NOTHING_ELSE = wants([]);
/** Shared, because scanning is synchronous. */
const scanner = new JsonScanner();

/**
 * Reads a request and validates that all of it is JSON.
 * @param body the decoded body (no content coding)
 * @throws GatewayError `invalid_json` (empty, byte order mark, not UTF-8, not RFC 8259; names the byte), `invalid_body`
 *   (not an object), and for the members it reads `missing_required_parameter`, `invalid_type`, `invalid_value`,
 *   `duplicate_parameter`, also in another spelling. Syntax errors take precedence. Messages never quote the body.
 */
export function scanRequest(body: Buffer, wanted: Wanted = NOTHING_ELSE): RequestScan {
  checkEncoding(body);
  scanner.reset(body);
  return new RequestReader(wanted).read(body, scanner);
}

/** Whether the value at a span is `true`. */
export function isTrue(body: Buffer, span: Span | undefined): boolean {
  return span !== undefined && body[span.start] === LETTER_T;
}

/** Whether the value at a span is `false`. */
export function isFalse(body: Buffer, span: Span | undefined): boolean {
  return span !== undefined && body[span.start] === LETTER_F;
}

/**
 * The string at a span; undefined for another value or none. For a string longer than any name or id, the undecoded beginning.
 */
export function textAt(body: Buffer, span: Span | undefined): string | undefined {
  if (span === undefined || body[span.start] !== QUOTE) return undefined;
  const { start, end } = span;
  return end - start > MAX_TEXT
    ? body.toString('latin1', start + 1, start + MAX_TEXT)
    : decodeString(body, span);
}

/**
 * A copy of `body` with each span replaced, in one allocation.
 * @param edits in any order, not overlapping. Insertions at one offset keep their order.
 * @throws GatewayError `internal_error` when edits overlap or lie outside the body
 */
export function spliceSpans(body: Buffer, edits: readonly Edit[]): Buffer {
  const ordered = inOrder(body, edits);
  let { length } = body;
  for (const { span, bytes } of ordered) length += bytes.length - (span.end - span.start);
  const result = Buffer.allocUnsafe(length);
  let to = 0;
  let from = 0;
  for (const { span, bytes } of ordered) {
    to += body.copy(result, to, from, span.start);
    to += bytes.copy(result, to);
    from = span.end;
  }
  body.copy(result, to, from);
  return result;
}

/** As `spliceSpans`, but returns consecutive pieces without copying. */
function splicePieces(body: Buffer, edits: readonly Edit[]): Buffer[] {
  const pieces: Buffer[] = [];
  let from = 0;
  for (const { span, bytes } of inOrder(body, edits)) {
    pieces.push(body.subarray(from, span.start), bytes);
    from = span.end;
  }
  pieces.push(body.subarray(from));
  return pieces;
}

/**
 * `body` with each span replaced.
 * @param maxCopied bytes of a body that is copied; the pieces of a larger one share its memory
 * @throws GatewayError as `spliceSpans`
 */
export function splice(
  body: Buffer,
  edits: readonly Edit[],
  maxCopied: number = LARGE_BODY,
): Buffer | BodyPieces {
  if (body.length > LARGE_BODY) return new BodyPieces(splicePieces(body, edits));
  if (edits.length === 0) return body;
  return body.length > maxCopied ? new BodyPieces(splicePieces(body, edits)) : spliceSpans(body, edits);
}

function inOrder(body: Buffer, edits: readonly Edit[]): readonly Edit[] {
  let from = 0;
  let sorted = true;
  for (const { span } of edits) {
    if (span.start < from) sorted = false;
    from = span.end;
  }
  const ordered = sorted ? edits : edits.toSorted(byOffset);
  from = 0;
  for (const { span } of ordered) {
    if (span.start < from || span.end < span.start || span.end > body.length) {
      throw new GatewayError('internal_error', undefined, { cause: new RangeError('edits overlap') });
    }
    from = span.end;
  }
  return ordered;
}

function byOffset(a: Edit, b: Edit): number {
  return a.span.start - b.span.start || a.span.end - b.span.end;
}

/** Cached tokens of model names: a routing table has few, and each request needs two. */
const tokens = new RecentMap<string, Buffer>(512);
const MAX_TOKEN = 256;

/** `text` as a JSON string token. Do not write to it: it is shared. */
export function jsonString(text: string): Buffer {
  const known = tokens.get(text);
  if (known !== undefined) return known;
  const token = Buffer.from(JSON.stringify(text));
  // With patterns, clients invent names.
  if (text.length <= MAX_TOKEN) tokens.set(text, token);
  return token;
}
