// Body rules applied to the fields of a form. A rule about a nested member has no field, and does not apply.
import { parameterError } from '../../errors.ts';
import type { PartPosition } from '../../http/multipart/multipart-parser.ts';
import type { Span } from '../../wire/json/json.ts';
import { sameMembers } from '../request/member-edits.ts';
import type { Edit } from '../request/request-scan.ts';
import type { TargetEdits } from '../routes/target-edits.ts';

/** A field of a complete form. */
export interface FormPart extends PartPosition {
  /** As written. */
  readonly name: string;
  /** The folded name without suffixes such as `[]`. */
  readonly key: string;
  /** The part of the name behind the key: `[]`. */
  readonly suffix: string;
  readonly isFile: boolean;
  readonly type: string | undefined;
}

const NO_BYTES = Buffer.alloc(0);

/**
 * The edits for one target.
 * @param closedAt offset of the last boundary
 * @throws GatewayError duplicate_parameter for a field beside its new name
 */
export function formEdits(
  { list }: TargetEdits,
  parts: readonly FormPart[],
  boundary: string,
  closedAt: number,
): Edit[] {
  const edits: Edit[] = [];
  const headOf = (name: string, type?: string): string =>
    `--${boundary}\r\ncontent-disposition: form-data; name="${name}"\r\n${type === undefined ? '' : `content-type: ${type}\r\n`}\r\n`;
  const fieldOf = (name: string, value: Buffer) => Buffer.from(`${headOf(name)}${fieldText(value)}\r\n`);
  const replace = ({ start, end }: Span, bytes: Buffer) => edits.push({ span: { start, end }, bytes });
  const add = (name: string, value: Buffer) =>
    replace({ start: closedAt, end: closedAt }, fieldOf(name, value));
  for (const edit of list) {
    const { member } = edit;
    const [name = ''] = member.steps;
    if (member.steps.length > 1) continue;
    const found = parts.filter(({ key }) => key === member.key);
    const [first, ...others] = found;
    if (edit.kind === 'remove') for (const part of found) replace(part, NO_BYTES);
    else if (edit.kind === 'set') {
      if (first === undefined) add(name, edit.value);
      else replace(first, fieldOf(name, edit.value));
      for (const part of others) replace(part, NO_BYTES);
    } else if (edit.kind === 'default') {
      const isRenamed = parts.some(({ key }) => key === edit.renamed?.key);
      if (first === undefined && !isRenamed) add(name, edit.value);
    } else if (first !== undefined && edit.to.steps.length === 1) {
      if (parts.some(({ key }) => key === edit.to.key)) throw sameMembers(member, edit.to);
      for (const { start, contentStart: end, suffix, type, isFile } of found) {
        // The head of a file has more than a name.
        if (isFile) throw parameterError('invalid_type', member.text, 'must not be a file');
        const head = headOf(`${edit.to.steps[0] ?? ''}${suffix}`, type);
        replace({ start, end }, Buffer.from(head, 'latin1'));
      }
    }
  }
  return edits;
}

/** A value as a field: the text of a string, and JSON for all else. */
function fieldText(json: Buffer): string {
  const value: unknown = JSON.parse(json.toString());
  return typeof value === 'string' ? value : json.toString();
}
