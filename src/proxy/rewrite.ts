// A request in the words of one target: the client's own bytes, with the model's upstream name and, where the gateway may
// ask for it, usage in streams. Nothing else differs.
import { type Edit, jsonString, type RequestScan, spliceSpans } from './request-scan.ts';
import type { Target } from './route-table.ts';

const INCLUDE_USAGE = Buffer.from('{"include_usage":true}');
const STREAM_OPTIONS = Buffer.from(',"stream_options":{"include_usage":true}');
const MEMBER = Buffer.from('"include_usage":true');
const TRUE = Buffer.from('true');
const COMMA = Buffer.from(',');

/** Whether the gateway asks this target for usage on its own account, which the client then must not see. */
export function asksForUsage(target: Target, scan: RequestScan): boolean {
  // OpenAI takes stream_options only with `stream: true`; some upstreams refuse the field and are set to `off`.
  return scan.stream && !scan.includeUsage && target.upstream.config.stream_usage === 'inject';
}

/** @param body the client's body, which `scan` was made from */
export function bodyFor(target: Target, body: Buffer, scan: RequestScan): Buffer {
  const edits: Edit[] = [];
  if (target.model !== scan.model) edits.push({ span: scan.modelSpan, bytes: jsonString(target.model) });
  if (asksForUsage(target, scan)) edits.push(usageEdit(body, scan));
  return edits.length === 0 ? body : spliceSpans(body, edits);
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
