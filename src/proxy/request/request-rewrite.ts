// The request body for one target: the client's own bytes with the target's model name, without removed members and, where the
// gateway requests it, with usage in streams.
import type { BodySource } from '../../http/pieces/body-source.ts';
import type { Span } from '../../wire/json.ts';
import type { Target } from '../routes/route-table.ts';
import { emptiesObject, removedFor, withoutMembers } from './member-edits.ts';
import { type Edit, jsonString, type RequestScan, splice } from './request-scan.ts';

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
 * Whether the gateway itself requests usage from this target, which is then hidden from the client.
 * @param hasOption the endpoint has `stream_options.include_usage`
 */
export function requestsUsage(target: Target, scan: RequestScan, hasOption = true): boolean {
  // OpenAI accepts stream_options only with `stream: true`; upstreams that reject the field are set to `off`.
  return hasOption && scan.stream && !scan.includeUsage && target.upstream.config.stream_usage === 'inject';
}

/**
 * @param body the client's body, from which `scan` was made
 * @returns pieces that share the memory of a large `body`; a small one is copied
 * @param asksUsage result of `requestsUsage`
 */
export function bodyFor(
  target: Target,
  body: Buffer,
  scan: RequestScan,
  asksUsage = requestsUsage(target, scan),
): Buffer | BodySource {
  const removed = removedFor(target, scan.members);
  const sendsModel = target.upstream.config.send_model !== false;
  if (!sendsModel && scan.modelSpan !== null) removed.push(modelMember(body, scan.modelSpan));
  const edits = removed.length === 0 ? [] : withoutMembers(body, removed);
  if (sendsModel && target.model !== scan.model) {
    const isEmpty = scan.isEmpty || (removed.length > 0 && emptiesObject(body, edits));
    edits.push(modelEdit(target.model, scan, isEmpty));
  }
  if (asksUsage) edits.push(usageEdit(body, scan));
  return splice(body, edits);
}

/** A request without a model means the default, which has another name at this target, so the member is inserted. */
function modelEdit(model: string, { modelSpan, insertAt }: RequestScan, isEmpty: boolean): Edit {
  const bytes = jsonString(model);
  if (modelSpan !== null) return { span: modelSpan, bytes };
  const member = Buffer.concat([isEmpty ? NO_BYTES : COMMA, MODEL, bytes]);
  return { span: { start: insertAt, end: insertAt }, bytes: member };
}

/** The span of the member including its name. The body is valid JSON. */
function modelMember(body: Buffer, { start, end }: Span): Span {
  let from = start - 1;
  while (body[from] !== COLON) from -= 1;
  // The name may contain escapes, but none of a `"`.
  from = body.lastIndexOf(QUOTE, body.lastIndexOf(QUOTE, from) - 1);
  return { start: from, end };
}

function usageEdit(body: Buffer, { streamOptions, includeUsageSpan, insertAt }: RequestScan): Edit {
  if (includeUsageSpan !== null) return { span: includeUsageSpan, bytes: TRUE };
  if (streamOptions === null) return { span: { start: insertAt, end: insertAt }, bytes: STREAM_OPTIONS };
  const options = body.subarray(streamOptions.start, streamOptions.end).toString();
  if (!options.startsWith('{')) return { span: streamOptions, bytes: INCLUDE_USAGE };
  // Its other members stay unchanged after the new one.
  const at = streamOptions.start + 1;
  const isEmpty = options.slice(1, -1).trim() === '';
  return { span: { start: at, end: at }, bytes: isEmpty ? MEMBER : Buffer.concat([MEMBER, COMMA]) };
}
