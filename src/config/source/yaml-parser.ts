// The YAML parser as this folder uses it: what it is asked for, and its complaints in words that hold nothing of the file.
import { type Node, parseDocument, type YAMLError } from 'yaml';

/** A place and what is wrong there. */
interface SyntaxPosition {
  readonly at: number;
  readonly message: string;
}

export interface YamlSource {
  readonly contents: Node | null;
  /** With any of these nothing is known about which text is what. */
  readonly errors: readonly SyntaxPosition[];
  readonly warnings: readonly SyntaxPosition[];
  /** The text of a scalar or key as it stands in the file. */
  unveil(value: string): string;
}

const TOO_DEEP = 'the file is nested too deeply';

/** The parser's own words where they hold nothing of the file; else ours. */
function syntaxMessage({ code, message }: YAMLError): string {
  switch (code) {
    case 'MISSING_CHAR':
      return message.startsWith('Missing closing')
        ? 'not valid YAML: a quoted value does not end'
        : `not valid YAML: ${message}`;
    case 'BAD_INDENT':
    case 'TAB_AS_INDENT':
    case 'BLOCK_AS_IMPLICIT_KEY':
    case 'MULTILINE_IMPLICIT_KEY':
      return `not valid YAML: ${message}`;
    case 'MULTIPLE_DOCS':
      return 'the file has more than one document; a configuration is one';
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
 * References with their braces veiled. In a flow collection (`{ api_key: ${KEY} }`) YAML takes braces for its own; as two
 * characters that the file does not have, of the same length, they reach the value untouched and no offset moves.
 */
class VeiledText {
  readonly text: string;
  readonly #open: string | undefined;
  readonly #close: string | undefined;

  constructor(source: string) {
    const unused: string[] = [];
    // The private use area has 6400 characters; a file with all of them has to do without.
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
        : source.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*(?::-[^}\n]*)?)\}/g, `$$${open}$1${close}`);
  }

  unveil(value: string): string {
    return this.#open === undefined || this.#close === undefined
      ? value
      : value.replaceAll(this.#open, '{').replaceAll(this.#close, '}');
  }
}

/** @param text a whole file; offsets in what is returned are offsets in it */
export function parseYaml(text: string): YamlSource {
  const veiled = new VeiledText(text);
  // Failsafe: every scalar stays text, so that no value is reformatted before its field is known. Duplicates are found in
  // yaml-tree.ts, where the rest of the file can still be read.
  const document = parseDocument(veiled.text, {
    version: '1.2',
    schema: 'failsafe',
    uniqueKeys: false,
    prettyErrors: false,
    logLevel: 'error',
  });
  const mark = (error: YAMLError): SyntaxPosition => ({ at: error.pos[0], message: syntaxMessage(error) });
  const errors = document.errors.map(mark);
  const deep = errors.find(({ message }) => message === TOO_DEEP);
  return {
    contents: document.contents,
    errors: deep === undefined ? errors : [deep],
    // Tags are refused in yaml-tree.ts, at their field.
    warnings: document.warnings.filter(({ code }) => code !== 'TAG_RESOLVE_FAILED').map(mark),
    unveil: (value) => veiled.unveil(value),
  };
}
