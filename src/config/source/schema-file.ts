// A YAML file that is read by a schema: its tree, its output, and everything that is wrong with it as faults with positions.
import { z } from 'zod';
import { ConfigError, type ConfigFault, MAX_FAULTS } from '../config-fault.ts';
import { childOf, fieldNames, optionOf, unwrap } from '../schema/field-kinds.ts';
import { drawExcerpt, SourceText } from './excerpt.ts';
import type { FileValues } from './referenced-files.ts';
import { issueMarks } from './schema-issues.ts';
import { nameMarks, pathText, shownOf, visibleSpans } from './visible-text.ts';
import { jsonTextOf } from './yaml-json.ts';
import { readTree, type YamlMapping, type YamlNode, type YamlPosition } from './yaml-tree.ts';

export class SchemaFile<Schema extends z.ZodType> {
  /** The name of the file, for messages. */
  readonly file: string;
  readonly tree: YamlMapping;
  /** Undefined where the schema finds a fault. */
  readonly output: z.output<Schema> | undefined;
  /** The faults that references and the schema have. */
  readonly marks: readonly YamlPosition[];
  /** The files of `${file:PATH}`, as written. */
  readonly files: ReadonlySet<string>;
  readonly #schema: Schema;
  readonly #source: SourceText;

  /**
   * @param env source of `${NAME}`
   * @param fileValues source of `${file:PATH}`
   * @throws ConfigError where it is no YAML mapping
   */
  constructor(text: string, file: string, schema: Schema, env: NodeJS.ProcessEnv, fileValues: FileValues) {
    this.file = file;
    this.#schema = schema;
    this.#source = new SourceText(text);
    const { tree, marks, files } = readTree(text, env, fileValues);
    if (tree === undefined) throw errorOf(this.#toFaults(marks, undefined));
    this.tree = tree;
    this.files = files;
    // Once per file: code that zod generates for a schema would be compiled for one call.
    const parsed = schema.safeParse(inputOf(tree, schema), { jitless: true });
    this.output = parsed.success ? parsed.data : undefined;
    const issues = parsed.error?.issues ?? [];
    this.marks = [
      ...marks,
      ...nameMarks(tree, schema),
      ...issues.flatMap((issue) => issueMarks(issue, tree, text, schema)),
    ];
  }

  /** Distinct faults in the order of the file, at most MAX_FAULTS. */
  faultsOf(marks: readonly YamlPosition[]): readonly ConfigFault[] {
    return this.#toFaults(marks, this.tree).faults;
  }

  errorOf(marks: readonly YamlPosition[]): ConfigError {
    return errorOf(this.#toFaults(marks, this.tree));
  }

  #toFaults(marks: readonly YamlPosition[], tree: YamlMapping | undefined): Faults {
    const schema = this.#schema;
    const spans = tree === undefined ? [] : visibleSpans(tree, schema);
    const words = tree === undefined ? schemaWords(schema) : new Set<string>();
    const texts = new Map<string, { readonly at: number; readonly message: string }>();
    for (const { at, path = [], message } of marks) {
      const where = pathText(path, tree, schema);
      const text = where === '' ? message : `${where}: ${message}`;
      texts.set(`${at} ${text}`, { at, message: text });
    }
    const sorted = [...texts.values()].sort((a, b) => a.at - b.at);
    const faults = sorted.slice(0, MAX_FAULTS).map(({ at, message }) => {
      const { line, column } = this.#source.locate(at);
      const excerpt = drawExcerpt(this.#source, at, spans, words);
      return { file: this.file, line, column, message, excerpt };
    });
    return { faults, more: sorted.length - faults.length };
  }
}

type Faults = Pick<ConfigError, 'faults' | 'more'>;

function errorOf({ faults, more }: Faults): ConfigError {
  return new ConfigError(faults, more);
}

/** Converts the tree to zod's input: strings, arrays and objects, without fields that optional references leave empty. */
function inputOf(tree: YamlNode, schema: z.core.$ZodType | undefined): unknown {
  if (schema !== undefined && unwrap(schema) instanceof z.ZodCustom) return jsonTextOf(tree);
  switch (tree.kind) {
    case 'blank':
      return null;
    case 'leaf':
      return tree.emptied && shownOf(schema) !== 'never' ? null : tree.value;
    case 'list':
      return tree.items.map((item, index) => inputOf(item, childOf(schema, index)));
    case 'branch': {
      const fields = optionOf(schema, 'branch') instanceof z.ZodObject;
      const object: Record<string, unknown> = Object.create(null);
      for (const [key, { value }] of tree.entries) {
        const field = childOf(schema, key);
        const input = inputOf(value, field);
        // `${NAME:-}` leaves a field out, but no entry of a mapping. Nothing behind a colon is a fault.
        if (input !== null || value.kind === 'blank' || !fields || field === undefined) object[key] = input;
      }
      return object;
    }
  }
}

/** All field names: the only words an excerpt shows of a file that is not YAML, where any other text may be a value. */
function schemaWords(schema: z.core.$ZodType, words: Set<string> = new Set()): ReadonlySet<string> {
  for (const field of fieldNames(schema)) {
    words.add(field);
    const child = childOf(schema, field);
    if (child !== undefined) schemaWords(child, words);
  }
  const inner = unwrap(schema);
  if (inner instanceof z.ZodRecord) schemaWords(inner.valueType, words);
  if (inner instanceof z.ZodArray) schemaWords(inner.element, words);
  return words;
}
