// Reads the input file of a batch: each of its lines is a request that the upstream runs with the operator's credentials. It names a
// model, and may refer to objects like any other request.
import { foldSteps } from '../config/schema/body-rules.ts';
import { GatewayError, parameterError } from '../errors.ts';
import { LARGE_BODY } from '../http/pieces/body-buffer.ts';
import { inSlices } from '../http/pieces/text-slices.ts';
import type { Endpoint } from '../proxy/contracts/endpoint.ts';
import { ReferenceFinder } from '../proxy/objects/object-references.ts';
import { LargeScan } from '../proxy/request/large-request.ts';
import { checkMembers, withFoundMembers } from '../proxy/request/member-edits.ts';
import type { RequestScan } from '../proxy/request/request-members.ts';
import { bodyFor } from '../proxy/request/request-rewrite.ts';
import { scanRequest, textAt } from '../proxy/request/request-scan.ts';
import type { Route, Target } from '../proxy/routes/route-table.ts';
import { type FoundMembers, WatchedMembers } from '../proxy/routes/watched-members.ts';
import type { Span } from '../wire/json/json.ts';

/** OpenAI accepts 200 MB. */
export const MAX_BATCH_INPUT = 256 * 1024 * 1024;
/** Maximum bytes of a line. */
const MAX_LINE = 32 * 1024 * 1024;
/** References per look-up in the store. */
const AT_ONCE = 1000;
const LF = 0x0a;
/** The member of a line with the body of its request. */
const ROOT = 'body';

const INPUT_FILE = 'input_file_id';
const ENDPOINT = 'endpoint';
/** Of Azure: the input is read, or the output written, where nothing is checked or counted. */
const ELSEWHERE = ['input_blob', 'output_folder'];
const MEMBERS = new WatchedMembers([INPUT_FILE, ENDPOINT, ...ELSEWHERE]);
const URL_MEMBER = 'url';
const LINE_MEMBERS = new WatchedMembers([ROOT, URL_MEMBER]);

/** What a request for a batch names. */
export interface BatchOrder {
  readonly inputFile: string;
  /** Of the value of `input_file_id`. */
  readonly span: Span;
  /** Undefined if it is missing or no text. */
  readonly endpoint: string | undefined;
}

/**
 * @param body a valid JSON text
 * @throws GatewayError duplicate_parameter, or invalid_value for another spelling, because the upstream could read another value;
 *   missing_required_parameter without an input file, and invalid_value for what names it, or the output, elsewhere
 */
export function batchOrderOf(body: Buffer): BatchOrder {
  const found = MEMBERS.search(body);
  for (const name of ELSEWHERE)
    if (found.has(foldSteps([name])))
      throw parameterError('invalid_value', name, 'is not offered: batches read and write files');
  const span = spanOf(body, found, INPUT_FILE);
  const inputFile = textAt(body, span);
  if (span === undefined || inputFile === undefined)
    throw parameterError('missing_required_parameter', INPUT_FILE, 'is required');
  return { inputFile, span, endpoint: textAt(body, spanOf(body, found, ENDPOINT)) };
}

export interface LineRequest {
  readonly model: string;
  /** Models that it names beside its own. */
  readonly others: readonly string[];
  /** @throws GatewayError as `checkMembers` */
  check(route: Pick<Route, 'rejected' | 'targets' | 'watched'>): void;
  /** The line as the target gets it. @throws GatewayError as `check` */
  rewrite(route: Pick<Route, 'watched'>, target: Target): Buffer;
}

/**
 * @param line a valid JSON text
 * @param endpoint of the batch
 * @param isOfBatch whether a `url` is the endpoint of the batch
 * @throws GatewayError as `scanRequest`, for the body of the line; invalid_value for another `url`
 */
export async function requestOfLine(
  line: Buffer,
  endpoint: Pick<Endpoint, 'wanted' | 'otherModels'>,
  isOfBatch: (url: string) => boolean,
): Promise<LineRequest> {
  const found = line.length > LARGE_BODY ? await LINE_MEMBERS.searchLarge(line) : LINE_MEMBERS.search(line);
  const url = spanOf(line, found, URL_MEMBER);
  if (url !== undefined && !isOfBatch(textAt(line, url) ?? ''))
    throw parameterError(
      'invalid_value',
      URL_MEMBER,
      'is not the endpoint of the batch in a line of the input file',
    );
  const span = spanOf(line, found, ROOT);
  if (span === undefined)
    throw parameterError('invalid_value', ROOT, 'is missing in a line of the input file');
  const body = line.subarray(span.start, span.end);
  const scan =
    body.length > LARGE_BODY ? await scanLarge(body, endpoint.wanted) : scanRequest(body, endpoint.wanted);
  return {
    model: scan.model,
    others: endpoint.otherModels?.(body, scan) ?? [],
    check: (route) => checkMembers(route, body, withFoundMembers(route, body, scan)),
    rewrite(route, target) {
      const adapted = bodyFor(target, body, withFoundMembers(route, body, scan), false);
      const rewritten = Buffer.isBuffer(adapted) ? adapted : adapted.toBuffer();
      return Buffer.concat([line.subarray(0, span.start), rewritten, line.subarray(span.end)]);
    },
  };
}

/** @throws GatewayError as `scanRequest` */
async function scanLarge(body: Buffer, wanted: Endpoint['wanted']): Promise<RequestScan> {
  const scan = new LargeScan(wanted);
  await inSlices(body.length, (end) => {
    scan.advance(body, end);
    return true;
  });
  return scan.end(body);
}

/**
 * The lines of a file that are not blank, without their ends.
 * @throws GatewayError request_too_large for a line over 32 MiB, and what the pieces throw
 */
export async function* linesOf(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  let parts: Buffer[] = [];
  let size = 0;
  const keep = (part: Buffer): void => {
    size += part.length;
    if (size > MAX_LINE) throw new GatewayError('request_too_large', 'A line of the file is too long.');
    parts.push(part);
  };
  const take = (): Buffer => {
    const line = Buffer.concat(parts);
    parts = [];
    size = 0;
    return line;
  };
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf(LF); end !== -1; end = piece.indexOf(LF, start)) {
      keep(piece.subarray(start, end));
      const line = take();
      if (!isBlank(line)) yield line;
      start = end + 1;
    }
    keep(piece.subarray(start));
  }
  const last = take();
  if (!isBlank(last)) yield last;
}

/** Finds the objects that the lines of an input file refer to. */
export class BatchInput {
  readonly #check: (found: ReferenceFinder) => Promise<void>;
  #found = new ReferenceFinder({ root: ROOT });

  /** @param check throws for references that the holder may not use */
  constructor(check: (found: ReferenceFinder) => Promise<void>) {
    this.#check = check;
  }

  /** @throws GatewayError invalid_json, or what `check` throws */
  async add(line: Buffer): Promise<void> {
    try {
      await this.#found.addBody(line);
    } catch (cause) {
      if (cause instanceof GatewayError && cause.code !== 'invalid_json') throw cause;
      // The upstream could read it differently.
      throw new GatewayError('invalid_json', 'A line of the input file is not valid JSON.', { cause });
    }
    if (this.#found.size < AT_ONCE) return;
    await this.#check(this.#found);
    this.#found = new ReferenceFinder({ root: ROOT });
  }

  /** The file is complete. @throws what `check` throws */
  async end(): Promise<void> {
    await this.#check(this.#found);
  }
}

/** The span of a member's value. @throws GatewayError for a member that two readers could take for another */
function spanOf(text: Buffer, found: FoundMembers, name: string): Span | undefined {
  const member = found.get(foldSteps([name]));
  if (member === undefined) return undefined;
  if (member.isTwice) throw parameterError('duplicate_parameter', name, 'is given more than once');
  if (JSON.parse(text.toString('utf8', member.start, member.nameEnd)) !== name)
    throw parameterError('invalid_value', name, 'is spelled differently: spell it exactly like this');
  return { start: member.valueStart, end: member.end };
}

function isBlank(line: Buffer): boolean {
  return line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);
}
