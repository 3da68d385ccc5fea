// What the rules for members do to one request: it is refused, or members are taken out of what a target is sent. Which
// members it has is watched-members.ts.
import { GatewayError } from '../../errors.ts';
import type { Span } from '../../wire/json.ts';
import type { Route, Target } from '../routes/route-table.ts';
import { type FoundMembers, unsupportedMember } from '../routes/watched-members.ts';
import type { Edit } from './request-scan.ts';

const COMMA = 0x2c;
const CLOSE_OBJECT = 0x7d;
const NO_BYTES = Buffer.alloc(0);

/** @throws GatewayError unsupported_parameter where the route refuses one of them, duplicate_parameter where one is removed and stands twice */
export function checkMembers(
  { refused, targets }: Pick<Route, 'refused' | 'targets'>,
  found: FoundMembers,
): void {
  for (const [path, { isTwice }] of found) {
    const name = refused?.get(path);
    if (name !== undefined) throw unsupportedMember(name);
    if (!isTwice || !targets.some(({ removed }) => removed?.has(path))) continue;
    const param = targets.map(({ removed }) => removed?.get(path)).find((each) => each !== undefined) ?? path;
    throw new GatewayError('duplicate_parameter', `The parameter '${param}' is given more than once.`, {
      param,
    });
  }
}

/** Where the members stand that this target does not get. */
export function removedFor({ removed }: Target, found: FoundMembers): Span[] {
  if (removed === undefined || found.size === 0) return [];
  return [...found].flatMap(([path, { span }]) => (removed.has(path) ? [span] : []));
}

/**
 * Takes members out, each with one comma. The body was scanned, so what stands around them is known.
 * @param members from the quote of the name to the end of the value
 */
export function withoutMembers(body: Buffer, members: readonly Span[]): Edit[] {
  const edits: Edit[] = [];
  let removedTo = -1;
  for (const { start, end } of members.toSorted((a, b) => a.start - b.start)) {
    // It stands in one that goes as a whole.
    if (start < removedTo) continue;
    let before = start - 1;
    while (isSpace(body[before])) before -= 1;
    // The comma in front goes with it, unless it went with the member before that.
    if (body[before] === COMMA && before >= removedTo) {
      edits.push({ span: { start: before, end }, bytes: NO_BYTES });
      removedTo = end;
      continue;
    }
    const after = behindSpace(body, end);
    removedTo = body[after] === COMMA ? after + 1 : end;
    edits.push({ span: { start, end: removedTo }, bytes: NO_BYTES });
  }
  return edits;
}

/** Whether nothing is left of the outermost object. */
export function leavesNothing(body: Buffer, edits: readonly Edit[]): boolean {
  let at = behindSpace(body, body.indexOf('{') + 1);
  for (const { span } of edits) {
    if (span.start !== at) return false;
    at = behindSpace(body, span.end);
  }
  return body[at] === CLOSE_OBJECT;
}

function behindSpace(body: Buffer, start: number): number {
  let at = start;
  while (isSpace(body[at])) at += 1;
  return at;
}

/** RFC 8259, 2. */
function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
}
