// Reads YAML into a tree of text nodes with positions, and expands references to the environment and to files. The schema gives the text its
// meaning.
import { type Alias, isAlias, isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml';
import { expand } from './environment.ts';
import type { FileValues } from './referenced-files.ts';
import { parseYaml, type YamlSource } from './yaml-parser.ts';

/** A range of the text, in UTF-16 code units. */
export interface SourceSpan {
  readonly start: number;
  readonly end: number;
}

/** A scalar: always text, exactly as written. */
interface YamlScalar {
  readonly kind: 'leaf';
  readonly span: SourceSpan;
  /** The expanded text; meaningless if `broken`. */
  readonly value: string;
  /** Without quotes, so that it may be a number or `true`. */
  readonly isPlain: boolean;
  /** Names of the referenced environment variables. */
  readonly variables: readonly string[];
  /** The referenced files, as written. */
  readonly files: readonly string[];
  /** Whether it is empty through optional references (`${NAME:-}`). */
  readonly emptied: boolean;
  /** Whether its fault has been reported, so that no further ones should be. */
  readonly broken: boolean;
}

/** No value, `null` or `~`. */
interface YamlBlank {
  readonly kind: 'blank';
  readonly span: SourceSpan;
}

interface YamlPair {
  readonly key: SourceSpan;
  readonly value: YamlNode;
}

export interface YamlMapping {
  readonly kind: 'branch';
  readonly span: SourceSpan;
  readonly entries: ReadonlyMap<string, YamlPair>;
  /** Duplicate keys; their values are read and dropped. */
  readonly repeated: readonly { readonly name: string; readonly key: SourceSpan }[];
}

interface YamlList {
  readonly kind: 'list';
  readonly span: SourceSpan;
  readonly items: readonly YamlNode[];
}

export type YamlNode = YamlScalar | YamlBlank | YamlMapping | YamlList;
export type YamlPath = readonly PropertyKey[];

/** A message for a position; load-config.ts converts it to a fault. */
export interface YamlPosition {
  /** Offset in the text. */
  readonly at: number;
  /** The field, if there is one. */
  readonly path?: YamlPath;
  readonly message: string;
}

interface YamlReading {
  /** Undefined when the file has no usable structure; then there are marks. */
  readonly tree: YamlMapping | undefined;
  readonly marks: readonly YamlPosition[];
  /** The referenced files, as written. */
  readonly files: ReadonlySet<string>;
}

/** Maximum nodes, counting each use of an alias: it bounds alias expansion ("billion laughs"). */
const MAX_NODES = 100_000;
const MAX_ALIASES = 1000;

const TAGS = new Set(['tag:yaml.org,2002:str', 'tag:yaml.org,2002:map', 'tag:yaml.org,2002:seq']);

/** A scalar whose fault has been reported. */
const BROKEN = { value: '', isPlain: true, variables: [], files: [], emptied: false, broken: true } as const;

class TreeReader {
  readonly marks: YamlPosition[] = [];
  /** All referenced files, as written. */
  readonly files = new Set<string>();
  readonly #source: YamlSource;
  readonly #env: NodeJS.ProcessEnv;
  readonly #fileValues: FileValues;
  readonly #anchors = new Map<string, Node>();
  /** The collections being read, to detect an alias to an enclosing one. */
  readonly #open = new Set<Node>();
  #nodes = 0;
  #aliases = 0;

  constructor(source: YamlSource, env: NodeJS.ProcessEnv, fileValues: FileValues) {
    this.#source = source;
    this.#env = env;
    this.#fileValues = fileValues;
  }

  get exhausted(): boolean {
    return this.#nodes > MAX_NODES || this.#aliases > MAX_ALIASES;
  }

  root(end: number): YamlMapping | undefined {
    const top = this.#source.contents;
    if (top === null || (isScalar(top) && top.value === '')) {
      this.#mark(0, [], 'the file is empty');
      return undefined;
    }
    const tree = this.#read(top, [], { start: 0, end });
    if (this.exhausted) {
      this.marks.length = 0;
      this.#mark(tree.span.start, [], 'the file has far too many values, with its aliases followed');
      return undefined;
    }
    if (tree.kind === 'branch') return tree;
    this.#mark(tree.span.start, [], 'the top level must be a mapping of fields');
    return undefined;
  }

  #mark(at: number, path: YamlPath, message: string): void {
    this.marks.push({ at, path, message });
  }

  #read(node: unknown, path: YamlPath, around: SourceSpan): YamlNode {
    this.#nodes += 1;
    if (this.exhausted) return { kind: 'blank', span: around };
    if (isAlias(node)) return this.#alias(node, path, spanOf(node, around));
    if (isScalar(node)) {
      this.#props(node, path, around);
      return this.#scalar(node.value, node.type === 'PLAIN', path, spanOf(node, around));
    }
    if (!isMap(node) && !isSeq(node)) return { kind: 'blank', span: around };
    const span = spanOf(node, around);
    this.#props(node, path, around);
    this.#open.add(node);
    const tree: YamlNode = isMap(node)
      ? { kind: 'branch', span, ...this.#entries(node, path, span) }
      : {
          kind: 'list',
          span,
          items: node.items.map((item, index) => this.#read(item, [...path, index], span)),
        };
    this.#open.delete(node);
    return tree;
  }

  /** Registers the anchor and rejects the tag. */
  #props(node: Node & { anchor?: string; tag?: string }, path: YamlPath, around: SourceSpan): void {
    if (node.anchor !== undefined) this.#anchors.set(node.anchor, node);
    if (node.tag !== undefined && !TAGS.has(node.tag)) {
      this.#mark(spanOf(node, around).start, path, 'has a tag; tags are not supported');
    }
  }

  #alias(alias: Alias, path: YamlPath, span: SourceSpan): YamlNode {
    this.#aliases += 1;
    const node = this.#anchors.get(alias.source);
    if (node === undefined || this.#open.has(node)) {
      const why =
        node === undefined
          ? 'is an alias of an anchor that is not defined before it (quote a value that begins with `*`)'
          : 'is an alias of a value that contains it';
      this.#mark(span.start, path, why);
      return { kind: 'leaf', span, ...BROKEN };
    }
    const tree = this.#read(node, path, span);
    // Faults of a scalar are reported where it is used; those inside a collection where the text is.
    return tree.kind === 'leaf' || tree.kind === 'blank' ? { ...tree, span } : tree;
  }

  #scalar(raw: unknown, plain: boolean, path: YamlPath, span: SourceSpan): YamlNode {
    const text = typeof raw === 'string' ? this.#source.unveil(raw) : '';
    if (plain && (text === '' || text === '~' || /^(null|Null|NULL)$/.test(text))) {
      return { kind: 'blank', span };
    }
    const expansion = expand(text, this.#env, this.#fileValues);
    const leaf = { kind: 'leaf', span, ...BROKEN, isPlain: plain } as const;
    if (!expansion.ok) {
      for (const fault of expansion.faults) this.#mark(span.start, path, fault);
      return leaf;
    }
    const { value, variables, files, optional } = expansion;
    for (const file of files) this.files.add(file);
    if (value === '' && variables.length > 0 && !optional) {
      const names = `${variables.length === 1 ? 'variable' : 'variables'} ${variables.join(', ')}`;
      this.#mark(span.start, path, `is empty, as given by the environment ${names}`);
      return leaf;
    }
    return { ...leaf, value, variables, files, emptied: value === '' && optional, broken: false };
  }

  #entries(map: YAMLMap, path: YamlPath, around: SourceSpan): Pick<YamlMapping, 'entries' | 'repeated'> {
    const entries = new Map<string, YamlPair>();
    const repeated: { name: string; key: SourceSpan }[] = [];
    for (const { key: node, value } of map.items) {
      const at = spanOf(node, around);
      const name =
        isScalar(node) && typeof node.value === 'string' ? this.#source.unveil(node.value) : undefined;
      if (isScalar(node)) this.#props(node, path, around);
      const inner = [...path, name ?? ''];
      // Read even if the key is rejected, to report faults below it and register anchors.
      const tree = this.#read(value, inner, { start: at.end, end: at.end });
      const fault = keyFault(name);
      if (fault !== undefined || name === undefined) this.#mark(at.start, path, fault ?? '');
      else if (entries.has(name)) {
        repeated.push({ name, key: at });
        this.#mark(at.start, inner, 'is given twice');
      } else entries.set(name, { key: at, value: tree });
    }
    return { entries, repeated };
  }
}

function keyFault(name: string | undefined): string | undefined {
  if (name === undefined) return 'has a key that is not a plain name';
  if (name === '') return 'has an empty key';
  // Assigning it would set an object's prototype.
  if (name === '__proto__') return 'has the key __proto__, which is not allowed';
  if (name === '<<')
    return 'has a merge key, which YAML 1.2 does not support; use an alias for the whole value';
  return name.includes('${')
    ? 'has a key with a reference; references are expanded in values only'
    : undefined;
}

function spanOf(node: unknown, fallback: SourceSpan): SourceSpan {
  const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
  return range === undefined || range === null ? fallback : { start: range[0], end: range[1] };
}

/** Reads a whole file. It never throws; all faults are in the marks. */
export function readTree(text: string, env: NodeJS.ProcessEnv, fileValues: FileValues): YamlReading {
  const source = parseYaml(text);
  if (source.errors.length > 0) return { tree: undefined, marks: source.errors, files: new Set() };
  const reader = new TreeReader(source, env, fileValues);
  reader.marks.push(...source.warnings);
  return { tree: reader.root(text.length), marks: reader.marks, files: reader.files };
}

interface Found {
  readonly node: YamlNode;
  readonly key?: SourceSpan;
}

/** The node at one step below another, with its key if it has one; undefined if absent. */
export function stepInto(tree: YamlNode, step: PropertyKey): Found | undefined {
  if (tree.kind === 'branch' && typeof step === 'string') {
    const entry = tree.entries.get(step);
    return entry && { node: entry.value, key: entry.key };
  }
  const item = tree.kind === 'list' && typeof step === 'number' ? tree.items[step] : undefined;
  return item && { node: item };
}

/** The node at a path, as `stepInto`. */
export function findNode(tree: YamlNode, path: YamlPath): Found | undefined {
  return path.reduce<Found | undefined>((found, step) => found && stepInto(found.node, step), { node: tree });
}

/** Whether the field is in the file, and no optional reference leaves it out. One without a value is a fault of its own. */
export const isGiven = (node: YamlNode | undefined): node is YamlNode =>
  node !== undefined && !(node.kind === 'leaf' && node.emptied);

/** Whether the text is in the configuration file as it is, so that a message may quote it. */
export const isLiteral = (node: YamlScalar): boolean =>
  node.variables.length === 0 && node.files.length === 0;

/** The text of a valid, non-empty scalar. */
export function nodeText(node: YamlNode | undefined): string | undefined {
  return node?.kind === 'leaf' && !node.broken && !node.emptied ? node.value : undefined;
}
