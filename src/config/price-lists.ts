// The price lists that a configuration names: reads the files, and checks them against it and against each other.
import { checkCurrency, checkPrice, mainCurrency } from './check/price-check.ts';
import { ConfigError, type ConfigFault } from './config-fault.ts';
import type { ListedPrices, Prices } from './prices.ts';
import { priceList } from './schema/price-schema.ts';
import type { FileValues } from './source/referenced-files.ts';
import { SchemaFile } from './source/schema-file.ts';
import { origin, suggestion } from './source/schema-issues.ts';
import {
  findNode,
  isLiteral,
  nodeText,
  type ReportFault,
  type YamlMapping,
  type YamlNode,
  type YamlPosition,
} from './source/yaml-tree.ts';

type ListFile = SchemaFile<typeof priceList>;

export class PriceLists {
  /** The files that could be read, and those of their references, as written. */
  readonly files = new Set<string>();
  /** What is wrong with the names of the files, in the configuration. */
  readonly marks: YamlPosition[] = [];
  readonly faults: ConfigFault[] = [];
  readonly warnings: ConfigFault[] = [];
  /** Number of further faults. */
  more = 0;
  /** Upstream → model → prices; undefined where the configuration names no list. */
  readonly prices: ListedPrices | undefined;
  readonly #tree: YamlMapping;
  /** Upstream and model → the file that has its price. */
  readonly #seen = new Map<string, string>();

  /** @param tree of the configuration */
  constructor(tree: YamlMapping, env: NodeJS.ProcessEnv, fileValues: FileValues) {
    this.#tree = tree;
    const given = findNode(tree, ['prices'])?.node;
    const nodes = given?.kind === 'list' ? given.items : given === undefined ? [] : [given];
    const listed: Record<string, Record<string, Prices>> = Object.create(null);
    for (const [index, node] of nodes.entries()) {
      const path = given?.kind === 'list' ? ['prices', index] : ['prices'];
      const file = this.#open(node, env, fileValues, (at, _, message) =>
        this.marks.push({ at, path, message }),
      );
      if (file === undefined) continue;
      this.#check(file);
      for (const [upstream, models] of Object.entries(file.output?.upstreams ?? {})) {
        listed[upstream] = Object.assign(listed[upstream] ?? Object.create(null), models);
      }
    }
    this.prices = nodes.length === 0 ? undefined : listed;
  }

  #open(
    node: YamlNode,
    env: NodeJS.ProcessEnv,
    fileValues: FileValues,
    fault: ReportFault,
  ): ListFile | undefined {
    const path = nodeText(node);
    if (path === undefined || path === '') return undefined;
    if (this.files.has(path)) {
      fault(node.span.start, [], 'is listed twice');
      return undefined;
    }
    const found = fileValues.text(path);
    if (!found.ok) {
      const name = node.kind === 'leaf' && isLiteral(node) ? `the file ${path},` : 'a file';
      fault(node.span.start, [], `names ${name} which ${found.fault}${origin(node)}`);
      return undefined;
    }
    this.files.add(path);
    try {
      const file = new SchemaFile(found.value, path, priceList, env, fileValues);
      for (const each of file.files) this.files.add(each);
      return file;
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      this.#add(error);
      return undefined;
    }
  }

  #add({ faults, more }: ConfigError): void {
    this.faults.push(...faults);
    this.more += more;
  }

  #check(file: ListFile): void {
    const marks: YamlPosition[] = [...file.marks];
    const warnings: YamlPosition[] = [];
    const fault: ReportFault = (at, path, message) => void marks.push({ at, path, message });
    const main = mainCurrency(this.#tree);
    checkCurrency(file.tree, [], main, fault);
    const names = namesIn(this.#tree, 'upstreams');
    const upstreams = findNode(file.tree, ['upstreams'])?.node;
    for (const [upstream, { key, value }] of upstreams?.kind === 'branch' ? upstreams.entries : []) {
      const path = ['upstreams', upstream];
      if (!names.includes(upstream)) {
        fault(key.start, path, `the configuration has no such upstream${suggestion(upstream, names)}`);
      }
      const used = this.#modelsAt(upstream);
      for (const [model, price] of value.kind === 'branch' ? value.entries : []) {
        const place = [...path, model];
        checkPrice(price.value, place, main, fault);
        const id = `${upstream}\0${model}`;
        const other = this.#seen.get(id);
        if (other !== undefined) fault(price.key.start, place, `has a price in ${other}, too`);
        this.#seen.set(id, file.file);
        if (model.includes('*') || used.includes(model)) continue;
        // A list may have models that no target uses, but a similar name is probably meant.
        const unlisted = used.filter((name) => value.kind === 'branch' && !value.entries.has(name));
        const near = suggestion(model, unlisted);
        if (near !== '') {
          warnings.push({ at: price.key.start, path: place, message: `no target has this model${near}` });
        }
      }
    }
    if (marks.length > 0) this.#add(file.errorOf(marks));
    this.warnings.push(...file.faultsOf(warnings));
  }

  /** The names of models that targets of the configuration have at an upstream. */
  #modelsAt(upstream: string): readonly string[] {
    const models = findNode(this.#tree, ['models'])?.node;
    return Array.from(models?.kind === 'branch' ? models.entries.values() : [], ({ value }) => {
      const targets = findNode(value, ['targets'])?.node;
      return targets?.kind === 'list' ? targets.items : [];
    })
      .flat()
      .flatMap((target) =>
        nodeText(target, 'upstream') === upstream ? (nodeText(target, 'model') ?? []) : [],
      );
  }
}

function namesIn(tree: YamlMapping, field: string): readonly string[] {
  const node = findNode(tree, [field])?.node;
  return node?.kind === 'branch' ? [...node.entries.keys()] : [];
}
