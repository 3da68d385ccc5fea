// The file as a tree of texts with their places: YAML in, structure out, with references to the environment expanded.
// It knows YAML and nothing of the fields; what a text means is up to the schema.
import { type Alias, isAlias, isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml';
import { expand } from './environment.ts';
import { parseYaml, type YamlSource } from './yaml-parser.ts';

/** A place in the text: offsets in UTF-16 code units. */
export interface SourceSpan {
  readonly start: number;
  readonly end: number;
}

/** A scalar: always text, exactly as written. */
interface YamlScalar {
  readonly kind: 'leaf';
  readonly span: SourceSpan;
  /** After expansion; meaningless where `broken`. */
  readonly value: string;
  /** Names of the environment variables in it. */
  readonly variables: readonly string[];
  /** Empty because of references that allow it (`${NAME:-}`). */
  readonly emptied: boolean;
  /** Its fault is reported already: nothing else should be said about it. */
  readonly broken: boolean;
}

/** Nothing written, `null` or `~`. */
interface YamlBlank {
  readonly kind: 'blank';
  readonly span: SourceSpan;
}

export interface YamlPair {
  readonly key: SourceSpan;
  readonly value: YamlNode;
}

export interface YamlMapping {
  readonly kind: 'branch';
  readonly span: SourceSpan;
  readonly entries: ReadonlyMap<string, YamlPair>;
  /** Keys that stand a second time; their values are read but not kept. */
  readonly repeated: readonly { readonly name: string; readonly key: SourceSpan }[];
}

interface YamlList {
  readonly kind: 'list';
  readonly span: SourceSpan;
  readonly items: readonly YamlNode[];
}

export type YamlNode = YamlScalar | YamlBlank | YamlMapping | YamlList;
export type YamlPath = readonly PropertyKey[];

/** Something to say about a place; load-config.ts makes a fault of it. */
export interface YamlPosition {
  /** Offset in the text. */
  readonly at: number;
  /** The field it is about, where there is one. */
  readonly path?: YamlPath;
  readonly message: string;
}

interface YamlReading {
  /** Undefined when the file has no usable structure; then there are marks, and nobody knows which text is what. */
  readonly tree: YamlMapping | undefined;
  readonly marks: readonly YamlPosition[];
}

/** More nodes than any configuration has, counted with every use of an alias: the bound on what aliases expand to. */
const MAX_NODES = 100_000;
const MAX_ALIASES = 1000;

const TAGS = new Set(['tag:yaml.org,2002:str', 'tag:yaml.org,2002:map', 'tag:yaml.org,2002:seq']);

class TreeReader {
  readonly marks: YamlPosition[] = [];
  readonly #source: YamlSource;
  readonly #env: NodeJS.ProcessEnv;
  readonly #anchors = new Map<string, Node>();
  /** The collections that are being read, to notice an alias of one inside itself. */
  readonly #open = new Set<Node>();
  #nodes = 0;
  #aliases = 0;

  constructor(source: YamlSource, env: NodeJS.ProcessEnv) {
    this.#source = source;
    this.#env = env;
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

  /** Remembers the anchor, refuses the tag. */
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
          ? 'is an alias of an anchor that does not stand before it (a value that begins with `*` has to be in quotes)'
          : 'is an alias of something that it stands in';
      this.#mark(span.start, path, why);
      return { kind: 'leaf', span, value: '', variables: [], emptied: false, broken: true };
    }
    const tree = this.#read(node, path, span);
    // A scalar is at fault where it is used; inside a collection the line with the text helps more.
    return tree.kind === 'leaf' || tree.kind === 'blank' ? { ...tree, span } : tree;
  }

  #scalar(raw: unknown, plain: boolean, path: YamlPath, span: SourceSpan): YamlNode {
    const text = typeof raw === 'string' ? this.#source.unveil(raw) : '';
    if (plain && (text === '' || text === '~' || /^(null|Null|NULL)$/.test(text))) {
      return { kind: 'blank', span };
    }
    const expansion = expand(text, this.#env);
    const leaf = { kind: 'leaf', span, value: '', variables: [], emptied: false, broken: true } as const;
    if (!expansion.ok) {
      for (const fault of expansion.faults) this.#mark(span.start, path, fault);
      return leaf;
    }
    const { value, variables, optional } = expansion;
    if (value === '' && variables.length > 0 && !optional) {
      const names = `${variables.length === 1 ? 'variable' : 'variables'} ${variables.join(', ')}`;
      this.#mark(span.start, path, `is empty, as given by the environment ${names}`);
      return leaf;
    }
    return { ...leaf, value, variables, emptied: value === '' && optional, broken: false };
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
      // Read even when the key is refused: what is wrong below is wrong all the same, and anchors count.
      const tree = this.#read(value, inner, { start: at.end, end: at.end });
      const fault = keyFault(name);
      if (fault !== undefined || name === undefined) {
        this.#mark(at.start, path, fault ?? '');
      } else if (entries.has(name)) {
        repeated.push({ name, key: at });
        this.#mark(at.start, inner, 'is given twice');
      } else {
        entries.set(name, { key: at, value: tree });
      }
    }
    return { entries, repeated };
  }
}

function keyFault(name: string | undefined): string | undefined {
  if (name === undefined) return 'has a key that is not a plain name';
  if (name === '') return 'has an empty key';
  // Objects take it as their prototype; nobody means it as a name.
  if (name === '__proto__') return 'has the key __proto__, which is not allowed';
  if (name === '<<') return 'has a merge key, which YAML 1.2 does not know; use an alias for the whole value';
  return name.includes('${')
    ? 'has a key with a reference; references are expanded in values only'
    : undefined;
}

function spanOf(node: unknown, fallback: SourceSpan): SourceSpan {
  const range = isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range : undefined;
  return range === undefined || range === null ? fallback : { start: range[0], end: range[1] };
}

/** Reads a whole file. Every problem is in the marks; nothing is thrown. */
export function readTree(text: string, env: NodeJS.ProcessEnv): YamlReading {
  const source = parseYaml(text);
  if (source.errors.length > 0) return { tree: undefined, marks: source.errors };
  const reader = new TreeReader(source, env);
  reader.marks.push(...source.warnings);
  return { tree: reader.root(text.length), marks: reader.marks };
}

/** The node at a path with its key, where it has one; undefined where nothing is written. */
export function findNode(
  tree: YamlNode,
  path: YamlPath,
): { readonly node: YamlNode; readonly key?: SourceSpan } | undefined {
  let found: { readonly node: YamlNode; readonly key?: SourceSpan } = { node: tree };
  for (const step of path) {
    const { node } = found;
    if (node.kind === 'branch' && typeof step === 'string') {
      const entry = node.entries.get(step);
      if (entry === undefined) return undefined;
      found = { node: entry.value, key: entry.key };
    } else if (node.kind === 'list' && typeof step === 'number') {
      const item = node.items[step];
      if (item === undefined) return undefined;
      found = { node: item };
    } else {
      return undefined;
    }
  }
  return found;
}

/** Takes a fault or a warning down. */
export type ReportFault = (at: number, path: YamlPath, message: string) => void;

/** Whether something was written there. */
export const isGiven = (node: YamlNode | undefined): node is YamlNode =>
  node !== undefined && node.kind !== 'blank' && !(node.kind === 'leaf' && node.emptied);

/** The text of a sound scalar. */
export function nodeText(tree: YamlNode | undefined, ...path: YamlPath): string | undefined {
  const node = tree === undefined ? undefined : findNode(tree, path)?.node;
  return node?.kind === 'leaf' && !node.broken && !node.emptied ? node.value : undefined;
}
