// Member rules applied to one request: it is rejected, or members are removed from the target's body. watched-members.ts finds
// the members.
import { GatewayError } from '../../errors.ts';
import type { Span } from '../../wire/json.ts';
import type { Route, Target } from '../routes/route-table.ts';
import { type FoundMembers, unsupportedMember } from '../routes/watched-members.ts';
import type { Edit } from './request-scan.ts';

const COMMA = 0x2c;
const CLOSE_OBJECT = 0x7d;
const NO_BYTES = Buffer.alloc(0);

/** @throws GatewayError unsupported_parameter for a member that the route rejects, duplicate_parameter for a duplicate that is to be removed */
export function checkMembers(
  { rejected, targets }: Pick<Route, 'rejected' | 'targets'>,
  found: FoundMembers,
): void {
  for (const [path, { isTwice }] of found) {
    const name = rejected?.get(path);
    if (name !== undefined) throw unsupportedMember(name);
    if (!isTwice || !targets.some(({ removed }) => removed?.has(path))) continue;
    const param = targets.map(({ removed }) => removed?.get(path)).find((each) => each !== undefined) ?? path;
    throw new GatewayError('duplicate_parameter', `The parameter '${param}' is given more than once.`, {
      param,
    });
  }
}

/** The spans of the members that this target does not receive. */
export function removedFor({ removed }: Target, found: FoundMembers): Span[] {
  if (removed === undefined || found.size === 0) return [];
  return [...found].flatMap(([path, { span }]) => (removed.has(path) ? [span] : []));
}

/**
 * Removes members, each with one comma. The body must be valid JSON.
 * @param members from the opening quote of the name to the end of the value
 */
export function withoutMembers(body: Buffer, members: readonly Span[]): Edit[] {
  const edits: Edit[] = [];
  let removedTo = -1;
  for (const { start, end } of members.toSorted((a, b) => a.start - b.start)) {
    // It lies within a removed member.
    if (start < removedTo) continue;
    let before = start - 1;
    while (isSpace(body[before])) before -= 1;
    // Remove the comma in front, unless the previous member took it.
    if (body[before] === COMMA && before >= removedTo) {
      edits.push({ span: { start: before, end }, bytes: NO_BYTES });
      removedTo = end;
      continue;
    }
    const after = afterSpace(body, end);
    removedTo = body[after] === COMMA ? after + 1 : end;
    edits.push({ span: { start, end: removedTo }, bytes: NO_BYTES });
  }
  return edits;
}

/** Whether the edits empty the outermost object. */
export function emptiesObject(body: Buffer, edits: readonly Edit[]): boolean {
  let at = afterSpace(body, body.indexOf('{') + 1);
  for (const { span } of edits) {
    if (span.start !== at) return false;
    at = afterSpace(body, span.end);
  }
  return body[at] === CLOSE_OBJECT;
}

function afterSpace(body: Buffer, start: number): number {
  let at = start;
  while (isSpace(body[at])) at += 1;
  return at;
}

/** RFC 8259, section 2. */
function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d;
}
