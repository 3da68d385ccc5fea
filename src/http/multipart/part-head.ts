// Parses the boundary of a form and the headers of a part. Strict: whatever two parsers could read differently is rejected.
import { GatewayError } from '../../errors.ts';

/** The headers of one part (RFC 7578, 4.2). */
export interface PartHead {
  /** As written, not decoded. */
  readonly name: string;
  /** Whether the part declares a file name. */
  readonly isFile: boolean;
  /** Content type with parameters, in lower case; undefined if absent. */
  readonly type: string | undefined;
}

/** RFC 9110, 5.6.2. `*` marks values encoded by RFC 5987. */
const TOKEN = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/;
/** Without escaped quotes, at which some parsers end the value and others do not. */
const QUOTED = /"(?:[^"\\]|\\(?!"))*"/;
const PARAMETER = new RegExp(
  `[ \\t]*;[ \\t]*(${TOKEN.source})=(?:(${TOKEN.source})|(${QUOTED.source}))`,
  'y',
);
const FIELD = new RegExp(`^(${TOKEN.source}):(.*)$`);
const END = /^[ \t]*(?:;[ \t]*)?$/;
/** RFC 2046, 5.1.1. */
const BOUNDARY = /^[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]$/;
const PRINTABLE = /^[\t\x20-\x7e]*$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters on purpose.
const CONTROL = /[\x00-\x08\x0a-\x1f\x7f]/;
/** Encodings that leave the content unchanged (RFC 2045, 6.2). */
const PLAIN_ENCODINGS: ReadonlySet<string> = new Set(['7bit', '8bit', 'binary']);

/**
 * The boundary of a form.
 * @param contentType header of a `multipart/form-data` request
 * @throws GatewayError invalid_form if there is none, more than one, or an invalid one (RFC 2046)
 */
export function boundaryOf(contentType: string): string {
  const at = contentType.indexOf(';');
  const parameters = at === -1 || !PRINTABLE.test(contentType) ? undefined : parametersOf(contentType, at);
  const boundary = parameters?.get('boundary');
  if (boundary === undefined || !BOUNDARY.test(boundary)) {
    throw new GatewayError(
      'invalid_form',
      'The content-type of a form must have exactly one boundary of 1 to 70 characters (RFC 2046, 5.1.1).',
    );
  }
  return boundary;
}

/**
 * @param block the header lines in Latin-1, without the empty line
 * @param fault creates the error
 * @throws the error that `fault` creates
 */
export function partHead(block: string, fault: (what: string) => GatewayError): PartHead {
  let disposition: string | undefined;
  let type: string | undefined;
  for (const line of block.split('\r\n')) {
    const [, field = '', written = ''] = FIELD.exec(line) ?? [];
    const value = written.trim();
    // Also rejects folded lines, other line ends and lines without a colon.
    if (field === '' || CONTROL.test(value)) throw fault('a header of a part is malformed');
    switch (field.toLowerCase()) {
      case 'content-disposition':
        if (disposition !== undefined) throw fault('a part has more than one content-disposition');
        disposition = value;
        break;
      case 'content-type':
        if (type !== undefined) throw fault('a part has more than one content-type');
        type = value.toLowerCase();
        if (type.startsWith('multipart/')) throw fault('a part is itself multipart');
        break;
      case 'content-transfer-encoding':
        if (!PLAIN_ENCODINGS.has(value.toLowerCase())) throw fault('a part has a transfer encoding');
        break;
      case 'content-encoding':
        throw fault('a part has a content coding');
    }
  }
  if (disposition === undefined) throw fault('a part has no content-disposition');
  const kind = /^form-data(?=[ \t]*;)/i.exec(disposition)?.[0];
  const parameters = kind === undefined ? undefined : parametersOf(disposition, kind.length);
  const name = parameters?.get('name');
  if (parameters === undefined || name === undefined)
    throw fault('the content-disposition of a part is malformed');
  for (const key of parameters.keys())
    if (key.startsWith('name*')) throw fault('the name of a part is encoded');
  const isFile = [...parameters.keys()].some((key) => /^filename(\*|$)/.test(key));
  return { name, isFile, type };
}

/** Name in lower case → unquoted value; undefined if malformed or repeated. */
function parametersOf(text: string, from: number): Map<string, string> | undefined {
  const parameters = new Map<string, string>();
  let at = from;
  for (;;) {
    PARAMETER.lastIndex = at;
    const match = PARAMETER.exec(text);
    if (match === null) return END.test(text.slice(at)) ? parameters : undefined;
    const [, name = '', token, quoted = ''] = match;
    const key = name.toLowerCase();
    if (parameters.has(key)) return undefined;
    parameters.set(key, token ?? quoted.slice(1, -1));
    at = PARAMETER.lastIndex;
  }
}
