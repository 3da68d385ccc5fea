// Checks the input file of a batch: each of its lines is a request that the upstream runs with the operator's credentials, and may
// refer to objects like any other request.
import { GatewayError } from '../errors.ts';
import { ReferenceFinder } from '../proxy/objects/object-references.ts';
import { MemberSearch, WatchedMembers } from '../proxy/routes/watched-members.ts';
import { memberOf } from '../upstream/error-outcome.ts';
import { JsonWalk } from '../wire/json-walk.ts';

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
const INPUT_FILE_MEMBER = new WatchedMembers([INPUT_FILE]);

/**
 * The input file of a batch; undefined if the request names none.
 * @param body a valid JSON text
 * @throws GatewayError duplicate_parameter, or invalid_value for another spelling, because the upstream could read another file
 */
export function inputFileOf(body: Buffer): string | undefined {
  const search = new MemberSearch(INPUT_FILE_MEMBER);
  new JsonWalk(search).advance(body, body.length, true);
  const [member] = search.found.values();
  if (member === undefined) return undefined;
  const param = { param: INPUT_FILE };
  if (member.isTwice) {
    const message = `The parameter '${INPUT_FILE}' is given more than once.`;
    throw new GatewayError('duplicate_parameter', message, param);
  }
  const id = memberOf(JSON.parse(body.toString()), INPUT_FILE);
  if (id === undefined) {
    const message = `The parameter '${INPUT_FILE}' is spelled differently: spell it exactly like this.`;
    throw new GatewayError('invalid_value', message, param);
  }
  return typeof id === 'string' ? id : undefined;
}

export class BatchInput {
  readonly #check: (found: ReferenceFinder) => Promise<void>;
  #found = new ReferenceFinder({ root: ROOT });
  #parts: Buffer[] = [];
  #size = 0;

  /** @param check throws for references that the holder may not use */
  constructor(check: (found: ReferenceFinder) => Promise<void>) {
    this.#check = check;
  }

  /** @throws GatewayError invalid_json, request_too_large, or what `check` throws */
  async add(chunk: Buffer): Promise<void> {
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      this.#keep(chunk.subarray(start, end));
      await this.#line();
      start = end + 1;
    }
    this.#keep(chunk.subarray(start));
  }

  /** The file is complete. Throws like `add`. */
  async end(): Promise<void> {
    await this.#line();
    await this.#check(this.#found);
  }

  #keep(part: Buffer): void {
    if (part.length === 0) return;
    this.#size += part.length;
    if (this.#size > MAX_LINE)
      throw new GatewayError('request_too_large', 'A line of the input file is too long.');
    this.#parts.push(part);
  }

  async #line(): Promise<void> {
    const line = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#size = 0;
    if (line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)) return;
    try {
      this.#found.addJson(line);
    } catch (cause) {
      // The upstream could read it differently.
      throw new GatewayError('invalid_json', 'A line of the input file is not valid JSON.', { cause });
    }
    if (this.#found.size < AT_ONCE) return;
    await this.#check(this.#found);
    this.#found = new ReferenceFinder({ root: ROOT });
  }
}
