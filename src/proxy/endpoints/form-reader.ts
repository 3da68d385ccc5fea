// The fields of a form, read while it arrives: those that the endpoint wants, and fields that upstreams could take for them, which are
// rejected. form-request.ts builds the form for one target.
import { isAscii, isUtf8 } from 'node:buffer';
import { foldSteps } from '../../config/schema/body-rules.ts';
import { GatewayError, parameterError } from '../../errors.ts';
import type { UploadWatcher } from '../../http/body/upload.ts';
import {
  type MultipartFault,
  MultipartParser,
  type PartListener,
  type PartPosition,
} from '../../http/multipart/multipart-parser.ts';
import type { PartHead } from '../../http/multipart/part-head.ts';
import { foldName } from '../../wire/json/json-bytes.ts';
import { formOf, meaningOf, plainText } from '../../wire/object-names.ts';
import type { FormRules, FormView } from '../contracts/endpoint.ts';
import type { Route } from '../routes/route-table.ts';
import { unsupportedMember, type WatchedMembers } from '../routes/watched-members.ts';
import type { FormPart } from './form-edits.ts';

const MODEL = 'model';
const STREAM = 'stream';
/** Longest value of a field that the gateway reads, in bytes. */
const MAX_VALUE = 1024;
/** Charsets in which ASCII equals UTF-8; some libraries declare Latin-1 for any text. */
const PLAIN_TEXT = /^text\/plain(?:[ \t]*;[ \t]*charset="?(utf-8|us-ascii|iso-8859-1|windows-1252)"?)?$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern rejects control characters.
const CONTROL = /[\x00-\x1f\x7f]/;

/** Reads the wanted fields, and rejects fields that upstreams could confuse with them. */
export class FormFields implements UploadWatcher, PartListener, FormView {
  readonly #rules: FormRules;
  readonly #scanner: MultipartParser;
  readonly #wanted: ReadonlySet<string>;
  /** Folded name → wanted name. */
  readonly #folded: ReadonlyMap<string, string>;
  readonly #values = new Map<string, string>();
  readonly #watched: WatchedMembers | undefined;
  readonly #isChanged: (model: string) => boolean;
  /** All fields so far, where some rule names fields. */
  readonly parts: FormPart[] = [];
  #head: PartHead = { name: '', isFile: false, type: undefined };
  #isEnded = false;
  /** Folded names of received fields that some route rejects. */
  readonly #found = new Set<string>();
  #rejected: Route['rejected'];
  readonly #seen = new Set<string>();
  /** Of the current part. */
  #name = '';
  #pieces: Buffer[] = [];
  #size = 0;
  #isUtf8 = true;
  /** An unread field, which must not be the id of an object. */
  #isOther = false;
  modelPart: PartPosition | undefined;
  /** Offset of the last boundary. */
  closedAt = 0;
  files = 0;
  textBytes = 0;
  #isFile = false;
  bytesOf: () => number = () => 0;
  confirm: () => unknown = () => undefined;
  /** Called when all fields are known. */
  onEnd: () => void = () => {};

  constructor(
    rules: FormRules,
    boundary: string,
    watched: WatchedMembers | undefined,
    isChanged: (model: string) => boolean = () => false,
  ) {
    this.#watched = watched;
    this.#isChanged = isChanged;
    this.#rules = rules;
    this.#scanner = new MultipartParser(boundary, this);
    this.#wanted = new Set([MODEL, STREAM, ...rules.fields]);
    this.#folded = new Map([...this.#wanted].map((name) => [foldName(name), name]));
  }

  get knownAt(): number | undefined {
    return this.modelPart === undefined || (!this.#isEnded && this.#isChanged(this.model))
      ? undefined
      : this.modelPart.end;
  }

  get model(): string {
    return this.#values.get(MODEL) ?? this.#rules.defaultModel ?? '';
  }

  get bytes(): number {
    return this.bytesOf();
  }

  text(name: string): string | undefined {
    return this.#values.get(name);
  }

  push(piece: Buffer): void {
    this.#scanner.push(piece);
  }

  end(): void {
    this.#scanner.end();
    this.#isEnded = true;
    this.onEnd();
    if (this.modelPart !== undefined || this.#rules.defaultModel !== undefined) return;
    throw parameterError('missing_required_parameter', MODEL, 'is missing');
  }

  onPart(head: PartHead, fault: MultipartFault): boolean {
    const { name, isFile, type } = head;
    this.#head = head;
    if (isFile) this.files += 1;
    this.#isFile = isFile;
    if (this.#watched !== undefined) this.#find(foldName(fieldName(name)), this.#watched);
    if (!this.#wanted.has(name)) {
      const plain = fieldName(name);
      if (plain.toLowerCase() === '_charset_') throw fault('a field names another charset');
      const meant = this.#folded.get(foldName(plain));
      if (meant !== undefined) throw fault(`the name of a field could be taken for '${meant}'`);
      return !isFile && this.#mayRefer(foldName(plain));
    }
    if (this.#seen.has(name)) throw parameterError('duplicate_parameter', name, 'is given more than once');
    if (isFile) throw fault(`the field '${name}' is a file`);
    const [isPlain, charset = 'utf-8'] = (type === undefined ? undefined : PLAIN_TEXT.exec(type)) ?? [];
    if (type !== undefined && isPlain === undefined) throw fault(`the field '${name}' is not plain text`);
    this.#isUtf8 = charset === 'utf-8';
    this.#seen.add(name);
    this.#name = name;
    this.#pieces = [];
    this.#size = 0;
    return true;
  }

  reject(names: NonNullable<Route['rejected']>): void {
    this.#rejected = names;
    for (const name of this.#found) this.#check(name);
  }

  #find(name: string, { root }: WatchedMembers): void {
    if (!root.within.has(name)) return;
    this.#found.add(name);
    this.#check(name);
  }

  #check(name: string): void {
    const rejected = this.#rejected?.get(name);
    if (rejected !== undefined) throw unsupportedMember(rejected);
  }

  /** No form endpoint takes object ids: such a field could only reach objects of other holders. */
  #mayRefer(name: string): boolean {
    const isReference = /^(?:object|response)$/.test(meaningOf(name)) && /ids?$/.test(name);
    if (isReference) throw new GatewayError('object_not_found');
    this.#isOther = name !== 'prompt';
    this.#pieces = [];
    this.#size = 0;
    return this.#isOther;
  }

  onContent(bytes: Buffer): void {
    this.#size += bytes.length;
    if (this.#isOther) {
      if (this.#size <= MAX_VALUE) this.#pieces.push(Buffer.from(bytes));
      return;
    }
    if (this.#size > MAX_VALUE)
      throw parameterError('invalid_value', this.#name, `has more than ${MAX_VALUE} bytes`);
    this.#pieces.push(Buffer.from(bytes));
  }

  onPartEnd(position: PartPosition): void {
    if (this.#watched !== undefined) {
      const plain = fieldName(this.#head.name);
      const suffix = this.#head.name.startsWith(plain) ? this.#head.name.slice(plain.length) : '';
      this.parts.push({ ...position, ...this.#head, key: foldSteps([plain]), suffix });
    }
    if (!this.#isFile) this.textBytes += position.contentEnd - position.contentStart;
    if (this.#isOther) {
      this.#isOther = false;
      const id = plainText(Buffer.concat(this.#pieces).toString());
      if (this.#size <= MAX_VALUE && formOf(id) !== undefined) throw new GatewayError('object_not_found');
      return;
    }
    const name = this.#name;
    if (name === '') return;
    this.#name = '';
    const bytes = Buffer.concat(this.#pieces);
    const text = bytes.toString();
    const isText = this.#isUtf8 ? isUtf8(bytes) : isAscii(bytes);
    if (!isText || CONTROL.test(text))
      throw parameterError('invalid_value', name, 'must be text on one line');
    if (name === MODEL) {
      if (text === '' && this.#rules.defaultModel !== '')
        throw parameterError('invalid_value', name, 'must not be empty');
      this.modelPart = position;
    }
    if (name === STREAM && text !== 'true' && text !== 'false')
      throw parameterError('invalid_type', name, 'must be true or false');
    this.#rules.check?.(name, text);
    this.#values.set(name, text);
  }

  onClose(at: number): void {
    this.closedAt = at;
  }
}

/** Removes percent-encoding, quoting, and array or object suffixes from a name. */
function fieldName(name: string): string {
  // Header values were read as Latin-1, but are mostly UTF-8.
  let decoded = Buffer.from(name, 'latin1').toString().replaceAll('\\', '');
  try {
    decoded = decodeURIComponent(decoded);
  } catch {
    // Not percent-encoded.
  }
  return (decoded.split(/[[.]/, 1)[0] ?? '').trim();
}
