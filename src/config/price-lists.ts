// The price lists that a configuration names: reads the files, and checks them against it and against each other.
import { ConfigField } from './check/config-field.ts';
import { checkCurrency, checkPrice, mainCurrency } from './check/price-check.ts';
import { ConfigError, type ConfigFault } from './config-fault.ts';
import type { ListedPrices, Prices } from './prices.ts';
import { priceList } from './schema/price-schema.ts';
import type { FileValues } from './source/referenced-files.ts';
import { SchemaFile } from './source/schema-file.ts';
import { origin, suggestion } from './source/schema-issues.ts';
import { isLiteral, type YamlMapping, type YamlPosition } from './source/yaml-tree.ts';

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
  readonly #config: ConfigField;
  /** Upstream and model → the file that has its price. */
  readonly #seen = new Map<string, string>();

  /** @param tree of the configuration */
  constructor(tree: YamlMapping, env: NodeJS.ProcessEnv, fileValues: FileValues) {
    this.#config = ConfigField.root(tree, { faults: this.marks, warnings: [] });
    const given = this.#config.at('prices');
    const fields = given.node?.kind === 'list' ? given.items : given.node === undefined ? [] : [given];
    const listed: Record<string, Record<string, Prices>> = Object.create(null);
    for (const field of fields) {
      const file = this.#open(field, env, fileValues);
      if (file === undefined) continue;
      this.#check(file);
      for (const [upstream, models] of Object.entries(file.output?.upstreams ?? {})) {
        listed[upstream] = Object.assign(listed[upstream] ?? Object.create(null), models);
      }
    }
    this.prices = fields.length === 0 ? undefined : listed;
  }

  #open(field: ConfigField, env: NodeJS.ProcessEnv, fileValues: FileValues): ListFile | undefined {
    const { node, text: path } = field;
    if (path === undefined || path === '') return undefined;
    if (this.files.has(path)) {
      field.fault('is listed twice');
      return undefined;
    }
    const found = fileValues.text(path);
    if (!found.ok) {
      const name = node?.kind === 'leaf' && isLiteral(node) ? `the file ${path},` : 'a file';
      field.fault(`names ${name} which ${found.fault}${origin(node)}`);
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
    const findings = { faults: [...file.marks], warnings: [] };
    const list = ConfigField.root(file.tree, findings);
    const main = mainCurrency(this.#config);
    checkCurrency(list, main);
    const names = this.#config.at('upstreams').entries.map(({ name }) => name);
    for (const upstream of list.at('upstreams').entries) {
      if (!names.includes(upstream.name))
        upstream.key.fault(`the configuration has no such upstream${suggestion(upstream.name, names)}`);
      const used = this.#modelsAt(upstream.name);
      const models = upstream.entries;
      const unlisted = used.filter((name) => models.every((model) => model.name !== name));
      for (const model of models) {
        checkPrice(model, main);
        const id = `${upstream.name}\0${model.name}`;
        const other = this.#seen.get(id);
        if (other !== undefined) model.key.fault(`has a price in ${other}, too`);
        this.#seen.set(id, file.file);
        if (model.name.includes('*') || used.includes(model.name)) continue;
        // A list may have models that no target uses, but a similar name is probably meant.
        const near = suggestion(model.name, unlisted);
        if (near !== '') model.key.warn(`no target has this model${near}`);
      }
    }
    if (findings.faults.length > 0) this.#add(file.errorOf(findings.faults));
    this.warnings.push(...file.faultsOf(findings.warnings));
  }

  /** The names of models that targets of the configuration have at an upstream. */
  #modelsAt(upstream: string): readonly string[] {
    const targets = this.#config.at('models').entries.flatMap((model) => model.at('targets').items);
    return targets.flatMap((target) =>
      target.at('upstream').text === upstream ? (target.at('model').text ?? []) : [],
    );
  }
}
