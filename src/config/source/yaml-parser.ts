// Wraps the YAML parser: its options, and its errors as messages that quote nothing of the file.
import { type Document, type Node, parseDocument, visit, type YAMLError } from 'yaml';

/** A position and its message. */
interface SyntaxPosition {
  readonly at: number;
  readonly message: string;
}

export interface YamlSource {
  readonly contents: Node | null;
  /** With an error, the structure of the file is unknown. */
  readonly errors: readonly SyntaxPosition[];
  readonly warnings: readonly SyntaxPosition[];
  /** Restores the original text of a scalar or key. */
  unveil(value: string): string;
}

const REFERENCE = /\$\{(file:[^}\n]+|[A-Za-z_][A-Za-z0-9_]*(?::-[^}\n]*)?)\}/g;
const TOO_DEEP = 'the file is nested too deeply';
const QUOTE_STAR =
  'not valid YAML: `*` and `&` have a meaning of their own; a value or name that begins with one has to be in quotes';
/** A `*` as the name of a field, which the parser takes for an alias and reports at a later line. */
const STAR_NAME = /(?<=^[ \t]*(?:- +)?)\*[ \t]*:/m;

const OPEN_QUOTE = 'not valid YAML: the quote that begins here does not end';
const TAGGED = 'has a tag; tags are not supported';

/** Messages for the codes of the parser, whose own may quote the file. */
const MESSAGES: { readonly [Code in YAMLError['code']]?: string } = {
  TAB_AS_INDENT: 'not valid YAML: this line is indented with a tab; use spaces',
  BLOCK_AS_IMPLICIT_KEY:
    'not valid YAML: a value with `: ` in it has to be in quotes, and the fields of a section begin on lines of their own, all with the same indentation',
  BAD_ALIAS: QUOTE_STAR,
  MULTIPLE_DOCS: 'the file has more than one YAML document; only one is allowed',
  RESOURCE_EXHAUSTION: TOO_DEEP,
  BAD_SCALAR_START: 'not valid YAML: this value has to be in quotes',
  BAD_DQ_ESCAPE: 'not valid YAML: unknown escape in double quotes; single quotes take a backslash as it is',
  TAG_RESOLVE_FAILED: TAGGED,
  BAD_COLLECTION_TYPE: TAGGED,
  BAD_DIRECTIVE: 'has a directive that is not supported; a configuration is YAML 1.2',
};
/** Codes whose messages by the parser quote nothing of the file. */
const PLAIN_CODES: readonly string[] = ['MISSING_CHAR', 'BAD_INDENT', 'MULTILINE_IMPLICIT_KEY'];

function syntaxMessage({ code, message }: YAMLError): string {
  if (code === 'MISSING_CHAR' && message.startsWith('Missing closing')) return OPEN_QUOTE;
  if (code === 'MISSING_CHAR' && message.startsWith('Implicit map keys'))
    return 'not valid YAML: this name has no colon, or no space after it';
  if (code === 'BAD_INDENT' && message.startsWith('All '))
    return 'not valid YAML: this line is indented differently from the others of its section';
  if (code === 'BAD_INDENT' && message.startsWith('Flow'))
    return `not valid YAML: a ${message.startsWith('Flow map') ? '{' : '['} is not closed; a \`#\` after a space begins a comment, and a value with one has to be in quotes`;
  if (PLAIN_CODES.includes(code)) return `not valid YAML: ${message}`;
  return MESSAGES[code] ?? 'not valid YAML: unexpected text or punctuation';
}

/**
 * Replaces the braces of references by two characters that the file does not contain. In a flow collection (`{ api_key: ${KEY} }`)
 * YAML would parse them as its own. The replacements have the same length, so offsets stay valid.
 */
function veil(source: string): { readonly text: string; readonly unveil: YamlSource['unveil'] } {
  const unused: string[] = [];
  // The private use area has 6400 characters; a file that uses all of them gets no replacement.
  for (let code = 0xe000; code < 0xf8ff && unused.length < 2; code += 1) {
    const character = String.fromCharCode(code);
    if (!source.includes(character)) unused.push(character);
  }
  const [open, close] = unused;
  if (open === undefined || close === undefined) return { text: source, unveil: String };
  return {
    text: source.replaceAll(REFERENCE, `$$${open}$1${close}`),
    unveil: (value) => value.replaceAll(open, '{').replaceAll(close, '}'),
  };
}

/** Where the last quoted value begins. */
function lastQuoteIn(document: Document): number | undefined {
  let last: number | undefined;
  visit(document, {
    Scalar(_, { type, range }) {
      if (type === 'QUOTE_DOUBLE' || type === 'QUOTE_SINGLE') last = Math.max(last ?? 0, range?.[0] ?? 0);
    },
  });
  return last;
}

/** @param text a whole file; returned offsets refer to it */
export function parseYaml(text: string): YamlSource {
  const veiled = veil(text);
  // The failsafe schema keeps scalars as text, so no value is reformatted before its field is known. yaml-tree.ts reports duplicate
  // keys and can still read the rest of the file.
  const document = parseDocument(veiled.text, {
    version: '1.2',
    schema: 'failsafe',
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
  });
  const mark = (error: YAMLError): SyntaxPosition => ({ at: error.pos[0], message: syntaxMessage(error) });
  const star = document.errors.length === 0 ? -1 : veiled.text.search(STAR_NAME);
  const errors = star < 0 ? document.errors.map(mark) : [{ at: star, message: QUOTE_STAR }];
  const deep = errors.find(({ message }) => message === TOO_DEEP);
  // The parser reports the end of the file, and then what is not closed there.
  const quoted = errors.some(({ message }) => message === OPEN_QUOTE) ? lastQuoteIn(document) : undefined;
  const only = deep ?? (quoted === undefined ? undefined : { at: quoted, message: OPEN_QUOTE });
  return {
    contents: document.contents,
    errors: only === undefined ? errors : [only],
    // yaml-tree.ts rejects tags, at their field.
    warnings: document.warnings.filter(({ code }) => code !== 'TAG_RESOLVE_FAILED').map(mark),
    unveil: veiled.unveil,
  };
}
