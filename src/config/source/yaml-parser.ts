// Wraps the YAML parser: its options, and its errors as messages that quote nothing of the file.
import { type Node, parseDocument, type YAMLError } from 'yaml';

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

const TOO_DEEP = 'the file is nested too deeply';
const QUOTE_STAR =
  'not valid YAML: `*` and `&` have a meaning of their own; a value or name that begins with one has to be in quotes';
/** A `*` as the name of a field, which the parser takes for an alias and reports at a later line. */
const STAR_NAME = /(?<=^[ \t]*(?:- +)?)\*[ \t]*:/m;

/** The parser's message if it quotes nothing of the file, otherwise our own. */
function syntaxMessage({ code, message }: YAMLError): string {
  switch (code) {
    case 'MISSING_CHAR':
      return message.startsWith('Missing closing')
        ? 'not valid YAML: a quoted value does not end'
        : `not valid YAML: ${message}`;
    case 'TAB_AS_INDENT':
      return 'not valid YAML: this line is indented with a tab; use spaces';
    case 'BLOCK_AS_IMPLICIT_KEY':
      return 'not valid YAML: a value with `: ` in it has to be in quotes, and the fields of a section begin on a line of their own';
    case 'BAD_ALIAS':
      return QUOTE_STAR;
    case 'BAD_INDENT':
      if (message.startsWith('Flow'))
        return `not valid YAML: a ${message.startsWith('Flow map') ? '{' : '['} is not closed; a \`#\` after a space begins a comment, and a value with one has to be in quotes`;
      return `not valid YAML: ${message}`;
    case 'MULTILINE_IMPLICIT_KEY':
      return `not valid YAML: ${message}`;
    case 'MULTIPLE_DOCS':
      return 'the file has more than one YAML document; only one is allowed';
    case 'RESOURCE_EXHAUSTION':
      return TOO_DEEP;
    case 'BAD_SCALAR_START':
      return 'not valid YAML: this value has to be in quotes';
    case 'BAD_DQ_ESCAPE':
      return 'not valid YAML: unknown escape in double quotes; single quotes take a backslash as it is';
    case 'TAG_RESOLVE_FAILED':
    case 'BAD_COLLECTION_TYPE':
      return 'has a tag; tags are not supported';
    case 'BAD_DIRECTIVE':
      return 'has a directive that is not supported; a configuration is YAML 1.2';
    default:
      return 'not valid YAML: unexpected text or punctuation';
  }
}

/**
 * Replaces the braces of references by two characters that the file does not contain. In a flow collection (`{ api_key: ${KEY} }`)
 * YAML would parse them as its own. The replacements have the same length, so offsets stay valid.
 */
class VeiledText {
  readonly text: string;
  readonly #open: string | undefined;
  readonly #close: string | undefined;

  constructor(source: string) {
    const unused: string[] = [];
    // The private use area has 6400 characters; a file that uses all of them gets no replacement.
    for (let code = 0xe000; code < 0xf8ff && unused.length < 2; code += 1) {
      const character = String.fromCharCode(code);
      if (!source.includes(character)) unused.push(character);
    }
    const [open, close] = unused;
    this.#open = open;
    this.#close = close;
    this.text =
      open === undefined || close === undefined
        ? source
        : source.replaceAll(
            /\$\{(file:[^}\n]+|[A-Za-z_][A-Za-z0-9_]*(?::-[^}\n]*)?)\}/g,
            `$$${open}$1${close}`,
          );
  }

  unveil(value: string): string {
    return this.#open === undefined || this.#close === undefined
      ? value
      : value.replaceAll(this.#open, '{').replaceAll(this.#close, '}');
  }
}

/** @param text a whole file; returned offsets refer to it */
export function parseYaml(text: string): YamlSource {
  const veiled = new VeiledText(text);
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
  return {
    contents: document.contents,
    errors: deep === undefined ? errors : [deep],
    // yaml-tree.ts rejects tags, at their field.
    warnings: document.warnings.filter(({ code }) => code !== 'TAG_RESOLVE_FAILED').map(mark),
    unveil: (value) => veiled.unveil(value),
  };
}
