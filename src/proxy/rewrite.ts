// A request in the words of one target: the client's own bytes, with the model's upstream name and, where the gateway may
// ask for it, usage in streams. Nothing else differs.
import type { BodySource } from '../http/body-source.ts';
import type { Span } from './json.ts';
import { type Edit, jsonString, type RequestScan, splice } from './request-scan.ts';
import type { Target } from './route-table.ts';

const INCLUDE_USAGE = Buffer.from('{"include_usage":true}');
const STREAM_OPTIONS = Buffer.from(',"stream_options":{"include_usage":true}');
const MEMBER = Buffer.from('"include_usage":true');
const MODEL = Buffer.from('"model":');
const TRUE = Buffer.from('true');
const COMMA = Buffer.from(',');
const NO_BYTES = Buffer.alloc(0);
const COLON = 0x3a;
const QUOTE = 0x22;

/**
 * Whether the gateway asks this target for usage on its own account, which the client then must not see.
 * @param hasOption whether the endpoint has the option for it
 */
export function asksForUsage(target: Target, scan: RequestScan, hasOption = true): boolean {
  // OpenAI takes stream_options only with `stream: true`; some upstreams refuse the field and are set to `off`.
  return hasOption && scan.stream && !scan.includeUsage && target.upstream.config.stream_usage === 'inject';
}

/**
 * @param body the client's body, which `scan` was made from
 * @returns a large body is not copied: what is sent of it is the memory of `body`
 * @param asksUsage what `asksForUsage` says
 */
export function bodyFor(
  target: Target,
  body: Buffer,
  scan: RequestScan,
  asksUsage = asksForUsage(target, scan),
): Buffer | BodySource {
  const edits: Edit[] = [];
  if (target.upstream.config.send_model === false) {
    if (scan.modelSpan !== null) edits.push(withoutModel(body, scan.modelSpan));
  } else if (target.model !== scan.model) edits.push(modelEdit(target.model, scan));
  if (asksUsage) edits.push(usageEdit(body, scan));
  return splice(body, edits);
}

/** A request that names no model means a default, which has another name at this target: so it is named. */
function modelEdit(model: string, { modelSpan, insertAt, isEmpty }: RequestScan): Edit {
  const bytes = jsonString(model);
  if (modelSpan !== null) return { span: modelSpan, bytes };
  const member = Buffer.concat([isEmpty ? NO_BYTES : COMMA, MODEL, bytes]);
  return { span: { start: insertAt, end: insertAt }, bytes: member };
}

/** Takes out the member, with its name and one comma. The body was scanned, so what stands around the value is known. */
function withoutModel(body: Buffer, { start, end }: Span): Edit {
  let from = start - 1;
  while (body[from] !== COLON) from -= 1;
  // The name may be spelled with escapes, but a `"` in it is none of `model`.
  from = body.lastIndexOf(QUOTE, body.lastIndexOf(QUOTE, from) - 1);
  let before = from - 1;
  while (isSpace(body[before])) before -= 1;
  if (body[before] === COMMA[0]) return { span: { start: before, end }, bytes: NO_BYTES };
  let after = end;
  while (isSpace(body[after])) after += 1;
  return { span: { start: from, end: body[after] === COMMA[0] ? after + 1 : end }, bytes: NO_BYTES };
}

/** RFC 8259, 2. */
function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
}

function usageEdit(body: Buffer, { streamOptions, includeUsageSpan, insertAt }: RequestScan): Edit {
  if (includeUsageSpan !== null) return { span: includeUsageSpan, bytes: TRUE };
  if (streamOptions === null) return { span: { start: insertAt, end: insertAt }, bytes: STREAM_OPTIONS };
  const options = body.subarray(streamOptions.start, streamOptions.end).toString();
  if (!options.startsWith('{')) return { span: streamOptions, bytes: INCLUDE_USAGE };
  // Its other members stay as they are, behind the new one.
  const at = streamOptions.start + 1;
  const isEmpty = options.slice(1, -1).trim() === '';
  return { span: { start: at, end: at }, bytes: isEmpty ? MEMBER : Buffer.concat([MEMBER, COMMA]) };
}
