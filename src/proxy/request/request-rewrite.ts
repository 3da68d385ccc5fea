// The request body for one target: the client's own bytes with the target's model name, the changes of its body rules and, where
// the gateway requests it, usage in streams.
import type { BodyPieces } from '../../http/pieces/body-pieces.ts';
import type { Span } from '../../wire/json/json.ts';
import type { Target } from '../routes/route-table.ts';
import { BodyEdits } from './member-edits.ts';
import type { RequestScan } from './request-members.ts';
import { jsonString, splice } from './request-scan.ts';

const INCLUDE_USAGE = 'include_usage';
const TRUE = Buffer.from('true');
const OPTIONS = Buffer.from('{"include_usage":true}');
/** The memory of a longer body costs more than its pieces. The connection copies them when it writes. */
const MAX_COPIED = 2 * 1024;
const COLON = 0x3a;
const QUOTE = 0x22;

/**
 * Whether the gateway itself requests usage from this target, which is then hidden from the client.
 * @param hasOption the endpoint has `stream_options.include_usage`
 */
export function requestsUsage(target: Target, scan: RequestScan, hasOption = true): boolean {
  // OpenAI accepts stream_options only with `stream: true`; upstreams that reject the field are set to `off`.
  if (!hasOption || !scan.stream || scan.includeUsage) return false;
  return target.upstream.config.stream_usage === 'inject' && target.edits?.dropsUsageOption !== true;
}

/**
 * @param body the client's body, from which `scan` was made
 * @returns pieces that share the memory of `body`; a small one is copied
 * @param asksUsage result of `requestsUsage`
 */
export function bodyFor(
  target: Target,
  body: Buffer,
  scan: RequestScan,
  asksUsage = requestsUsage(target, scan),
): Buffer | BodyPieces {
  const { edits: rules, model, upstream } = target;
  const { modelSpan } = scan;
  const edits = new BodyEdits(body, scan);
  if (rules !== undefined) edits.apply(rules);
  if (upstream.config.send_model === false) {
    if (modelSpan !== null) edits.remove(modelMember(body, modelSpan));
  } else if (model !== scan.model) {
    // A request without a model means the default, which has another name at this target.
    if (modelSpan === null) edits.add('model', jsonString(model));
    else edits.replace(modelSpan, jsonString(model));
  }
  if (asksUsage) requestUsage(edits, scan);
  return splice(body, edits.edits(), MAX_COPIED);
}

/** The span of the member including its name. The body is valid JSON. */
function modelMember(body: Buffer, { start, end }: Span): Span {
  let from = start - 1;
  while (body[from] !== COLON) from -= 1;
  // The name may contain escapes, but none of a `"`.
  from = body.lastIndexOf(QUOTE, body.lastIndexOf(QUOTE, from) - 1);
  return { start: from, end };
}

function requestUsage(edits: BodyEdits, { streamOptions, includeUsageSpan }: RequestScan): void {
  if (includeUsageSpan !== null) edits.replace(includeUsageSpan, TRUE);
  else if (streamOptions === null) edits.add('stream_options', OPTIONS);
  else edits.add(INCLUDE_USAGE, TRUE, streamOptions);
}
