// Body rules applied to one request: it is rejected, or members are spliced for a target. watched-members.ts finds the members.
import { GatewayError, parameterError } from '../../errors.ts';
import type { Span } from '../../wire/json/json.ts';
import type { Route } from '../routes/route-table.ts';
import type { MemberPath, TargetEdit, TargetEdits } from '../routes/target-edits.ts';
import { type FoundMember, type FoundMembers, unsupportedMember } from '../routes/watched-members.ts';
import type { RequestScan } from './request-members.ts';
import { type Edit, jsonString } from './request-scan.ts';

const COMMA = 0x2c;
const LETTER_N = 0x6e;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const NO_BYTES = Buffer.alloc(0);
const NO_MEMBERS: FoundMembers = new Map();
const NEXT = Buffer.from(',');
const OPEN = Buffer.from('{');
const CLOSE = Buffer.from('}');
const COLON = Buffer.from(':');

/**
 * The scan with the members that the route's rules name. A large body was searched while it arrived.
 * @param body from which `scan` was made
 */
export function withFoundMembers(
  { watched }: Pick<Route, 'watched'>,
  body: Buffer,
  scan: RequestScan,
): RequestScan {
  if (watched === undefined || scan.members !== undefined) return scan;
  return { ...scan, members: watched.search(body) };
}

/**
 * Checks that each target of the route can be sent this body, so that the answer does not depend on which one is chosen.
 * @throws GatewayError unsupported_parameter for a member that the route rejects; duplicate_parameter for a duplicate of a member
 *   that a rule changes, or beside its new name; invalid_type for a parent that is no object
 */
export function checkMembers(
  { rejected, targets }: Pick<Route, 'rejected' | 'targets'>,
  body: Buffer,
  scan: RequestScan,
): void {
  if (rejected !== undefined) {
    for (const path of scan.members?.keys() ?? []) {
      const name = rejected.get(path);
      if (name !== undefined) throw unsupportedMember(name);
    }
  }
  for (const { edits } of targets) {
    if (edits !== undefined) new BodyEdits(body, scan).apply(edits);
  }
}

/** Members that are added to one object, in order; nested where their parents are missing. */
type Added = Map<string, Buffer | Added>;

/** An object that gets members, or a null that becomes an object. */
interface Container {
  readonly span: Span;
  readonly added: Added;
}

/** The edits of one body. Members are removed, replaced and added; all other bytes stay. */
export class BodyEdits {
  readonly #body: Buffer;
  readonly #scan: Pick<RequestScan, 'insertAt' | 'isEmpty'>;
  readonly #found: FoundMembers;
  readonly #removed: Span[] = [];
  readonly #replaced: Edit[] = [];
  /** Spellings that are corrected, by offset. */
  #renamed: Map<number, Edit> | undefined;
  /** Of the outermost object. */
  #added: Added | undefined;
  /** Of other objects, by their offset. */
  #containers: Map<number, Container> | undefined;

  /** @param body from which `scan` was made, with the members of its route */
  constructor(body: Buffer, scan: Pick<RequestScan, 'insertAt' | 'isEmpty' | 'members'>) {
    this.#body = body;
    this.#scan = scan;
    this.#found = scan.members ?? NO_MEMBERS;
  }

  /** @throws GatewayError as `checkMembers` */
  apply({ list }: TargetEdits): void {
    for (const edit of list) this.#apply(edit);
  }

  #apply(edit: TargetEdit): void {
    const { member } = edit;
    const found = this.#one(member);
    switch (edit.kind) {
      case 'remove':
        if (found !== undefined) this.remove(found);
        break;
      case 'rename':
        if (found !== undefined) this.#rename(member, found, edit.to);
        break;
      case 'set':
        this.#correct(member, found === undefined ? member.steps.length - 1 : member.steps.length);
        if (found === undefined) this.#insert(member, edit.value, true);
        else this.replace({ start: found.valueStart, end: found.end }, edit.value);
        break;
      case 'default': {
        const renamed = edit.renamed === undefined ? undefined : this.#found.get(edit.renamed.key);
        if (found === undefined && renamed === undefined) this.#insert(member, edit.value, false);
      }
    }
  }

  /** @param member from the opening quote of its name to the end of its value */
  remove(member: Span): void {
    this.#removed.push(member);
  }

  replace(span: Span, bytes: Buffer): void {
    this.#replaced.push({ span, bytes });
  }

  /** Adds a member. @param span of an object, or of a null that becomes one; default: the outermost object */
  add(name: string, value: Buffer, span?: Span): void {
    this.#addedTo(span).set(name, value);
  }

  /** The edits in any order. Call once. */
  edits(): readonly Edit[] {
    const removed = withoutMembers(this.#body, this.#removed);
    const edits = [...removed, ...this.#replaced, ...(this.#renamed?.values() ?? [])];
    for (const { span, added } of this.#containers?.values() ?? [])
      edits.push(this.#insertion(span, membersOf(added), removed));
    if (this.#added !== undefined) edits.push(this.#append(membersOf(this.#added), removed));
    return edits;
  }

  /** The member, if the body has it. @throws GatewayError duplicate_parameter for it, or one above it, given twice */
  #one({ keys, key, text }: MemberPath): FoundMember | undefined {
    if (this.#found.size === 0) return undefined;
    for (const each of keys) {
      if (this.#found.get(each)?.isTwice === true)
        throw parameterError('duplicate_parameter', text, 'is given more than once');
    }
    return this.#found.get(key);
  }

  #rename(from: MemberPath, found: FoundMember, to: MemberPath): void {
    if (this.#one(to) !== undefined) throw sameMembers(from, to);
    if (from.keys.at(-2) === to.keys.at(-2)) {
      this.#correct(to, to.steps.length - 1);
      const span = { start: found.start, end: found.nameEnd };
      this.replace(span, jsonString(to.steps.at(-1) ?? ''));
      return;
    }
    this.remove(found);
    this.#insert(to, this.#body.subarray(found.valueStart, found.end), true);
  }

  /**
   * Adds a member, and the members above it that are missing.
   * @param isForced whether a null above it becomes an object
   */
  #insert(member: MemberPath, value: Buffer, isForced: boolean): void {
    const { steps, keys, text } = member;
    const last = steps.length - 1;
    let depth = 0;
    let parent: FoundMember | undefined;
    for (; depth < last; depth += 1) {
      const next = this.#found.get(keys[depth] ?? '');
      if (next === undefined) break;
      parent = next;
      const first = this.#body[next.valueStart];
      if (first === OPEN_OBJECT) continue;
      if (first !== LETTER_N) {
        const above = steps.slice(0, depth + 1).join('.');
        const what = `must be an object, because this model needs '${text}'`;
        throw parameterError('invalid_type', above, what);
      }
      // The client's null stays where only a default would be in the object.
      if (!isForced && this.#containers?.has(next.valueStart) !== true) return;
      depth += 1;
      break;
    }
    this.#correct(member, depth);
    let added = this.#addedTo(parent && { start: parent.valueStart, end: parent.end });
    for (const step of steps.slice(depth, last)) {
      const known = added.get(step);
      const next: Added = known instanceof Map ? known : new Map();
      added.set(step, next);
      added = next;
    }
    added.set(steps[last] ?? '', value);
  }

  /** Spells the first `count` members of a path as configured: the upstream may not read another spelling. */
  #correct({ steps, keys }: MemberPath, count: number): void {
    for (let index = 0; index < count; index += 1) {
      const found = this.#found.get(keys[index] ?? '');
      if (found === undefined) return;
      const name = jsonString(steps[index] ?? '');
      const span = { start: found.start, end: found.nameEnd };
      if (name.equals(this.#body.subarray(span.start, span.end))) continue;
      this.#renamed ??= new Map();
      this.#renamed.set(span.start, { span, bytes: name });
    }
  }

  #addedTo(span: Span | undefined): Added {
    if (span === undefined) {
      this.#added ??= new Map();
      return this.#added;
    }
    this.#containers ??= new Map();
    const { added = new Map() } = this.#containers.get(span.start) ?? {};
    this.#containers.set(span.start, { span, added });
    return added;
  }

  /** Members as the first ones of an object, or in place of a null. */
  #insertion(span: Span, members: Buffer, removed: readonly Edit[]): Edit {
    if (this.#body[span.start] !== OPEN_OBJECT) return { span, bytes: Buffer.concat([OPEN, members, CLOSE]) };
    const at = span.start + 1;
    const isEmpty = isEmptied(this.#body, at, removed);
    return { span: { start: at, end: at }, bytes: isEmpty ? members : Buffer.concat([members, NEXT]) };
  }

  /** Members as the last ones of the outermost object. */
  #append(members: Buffer, removed: readonly Edit[]): Edit {
    const { insertAt: at, isEmpty } = this.#scan;
    const isBare =
      isEmpty || (removed.length > 0 && isEmptied(this.#body, this.#body.indexOf(OPEN) + 1, removed));
    return { span: { start: at, end: at }, bytes: isBare ? members : Buffer.concat([NEXT, members]) };
  }
}

/** A request has a member beside its new name. */
export function sameMembers({ text: param }: MemberPath, { text }: MemberPath): GatewayError {
  const message = `The parameters '${param}' and '${text}' are the same for this model: send only one of them.`;
  return new GatewayError('duplicate_parameter', message, { param });
}

/** `"a":1,"b":{"c":2}` */
function membersOf(added: Added): Buffer {
  const pieces: Buffer[] = [];
  for (const [name, value] of added) {
    if (pieces.length > 0) pieces.push(NEXT);
    pieces.push(jsonString(name), COLON);
    if (value instanceof Map) pieces.push(OPEN, membersOf(value), CLOSE);
    else pieces.push(value);
  }
  return Buffer.concat(pieces);
}

/**
 * Removes members, each with one comma. The body must be valid JSON.
 * @param members from the opening quote of the name to the end of the value
 * @returns the edits in order
 */
export function withoutMembers(body: Buffer, members: readonly Span[]): Edit[] {
  const edits: Edit[] = [];
  let removedTo = -1;
  for (const { start, end } of members.toSorted((a, b) => a.start - b.start)) {
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

/** Whether removals leave nothing in an object. @param from behind its opening brace */
function isEmptied(body: Buffer, from: number, removed: readonly Edit[]): boolean {
  let at = afterSpace(body, from);
  for (const { span } of removed) {
    if (span.start < at) continue;
    if (span.start !== at) break;
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
