// A field of a file, for checks across fields: what is there, and what is reported about it.
import {
  isGiven,
  nodeText,
  stepInto,
  type YamlNode,
  type YamlPath,
  type YamlPosition,
} from '../source/yaml-tree.ts';

/** What checks report, each at an offset of the file. */
export interface Findings {
  readonly faults: YamlPosition[];
  readonly warnings: YamlPosition[];
}

/** A field of the file by its path. Nothing may be there: its position is then that of the field above it. */
export class ConfigField {
  readonly path: YamlPath;
  readonly node: YamlNode | undefined;
  /** The offset of the value. */
  readonly start: number;
  readonly #findings: Findings;
  readonly #keyStart: number;

  /** @param tree the whole file */
  static root(tree: YamlNode, findings: Findings): ConfigField {
    return new ConfigField(findings, [], tree, 0);
  }

  private constructor(
    findings: Findings,
    path: YamlPath,
    node: YamlNode | undefined,
    keyStart: number,
    start = node?.span.start ?? keyStart,
  ) {
    this.#findings = findings;
    this.path = path;
    this.node = node;
    this.#keyStart = keyStart;
    this.start = start;
  }

  /** The field at a path below this one. */
  at(...steps: YamlPath): ConfigField {
    let { node } = this;
    let keyStart = this.#keyStart;
    for (const step of steps) {
      const below = node && stepInto(node, step);
      node = below?.node;
      keyStart = (below?.key ?? below?.node.span)?.start ?? keyStart;
    }
    return new ConfigField(this.#findings, [...this.path, ...steps], node, keyStart);
  }

  /** This field, with reports at its key instead of its value; an item of a list has no key. */
  get key(): ConfigField {
    return new ConfigField(this.#findings, this.path, this.node, this.#keyStart, this.#keyStart);
  }

  /** The last step of the path: the name of a field or an entry. */
  get name(): string {
    return String(this.path.at(-1));
  }

  get isGiven(): boolean {
    return isGiven(this.node);
  }

  /** The text of a valid, non-empty scalar. */
  get text(): string | undefined {
    return nodeText(this.node);
  }

  /** The URL that the text is; undefined where it is none. */
  get url(): URL | undefined {
    return URL.parse(this.text ?? '') ?? undefined;
  }

  /** The fields of a mapping; none where there is no mapping. */
  get entries(): readonly ConfigField[] {
    return this.node?.kind === 'branch' ? Array.from(this.node.entries.keys(), (name) => this.at(name)) : [];
  }

  /** The items of a list; none where there is no list. */
  get items(): readonly ConfigField[] {
    return this.node?.kind === 'list' ? this.node.items.map((_, index) => this.at(index)) : [];
  }

  /** @param below path of the field that is wrong, where it is below this one */
  fault(message: string, ...below: YamlPath): void {
    this.faultOf([...this.path, ...below], message);
  }

  /** As `fault`, about the field at a path from the top of the file. */
  faultOf(path: YamlPath, message: string): void {
    this.#findings.faults.push({ at: this.start, path, message });
  }

  /** @param below as for `fault` */
  warn(message: string, ...below: YamlPath): void {
    this.warnOf([...this.path, ...below], message);
  }

  /** As `faultOf`. */
  warnOf(path: YamlPath, message: string): void {
    this.#findings.warnings.push({ at: this.start, path, message });
  }
}
