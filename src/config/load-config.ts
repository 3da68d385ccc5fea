// Parses and validates a configuration file, and reports all of its faults at once.
import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { checkReferences } from './check/reference-check.ts';
import { hashOf } from './config-hash.ts';
import { httpUrl } from './schema/addresses.ts';
import { ConfigError, type ConfigFault, MAX_FAULTS } from './schema/config-fault.ts';
import {
  type Config,
  type DynamicConfig,
  fileSchema,
  TIERS,
  type UpstreamConfig,
} from './schema/config-schema.ts';
import { childOf, fieldNames, unwrap } from './schema/field-kinds.ts';
import type { OutboundRules } from './schema/outbound-schema.ts';
import { readInteger, rejected, type ScalarResult } from './schema/units.ts';
import { fileFault, MAX_FILE, readConfigFile } from './source/config-file.ts';
import { drawExcerpt, SourceText } from './source/excerpt.ts';
import { proxyRules } from './source/outbound-rules.ts';
import { type FileValues, ReferencedFiles } from './source/referenced-files.ts';
import { issueMarks } from './source/schema-issues.ts';
import { nameMarks, pathText, shownOf, visibleSpans } from './source/visible-text.ts';
import { jsonTextOf } from './source/yaml-json.ts';
import {
  findNode,
  readTree,
  type YamlMapping,
  type YamlNode,
  type YamlPosition,
} from './source/yaml-tree.ts';

export { ConfigError, type ConfigFault, formatFault } from './schema/config-fault.ts';

/** Converts the tree to zod's input: strings, arrays and objects, without empty fields. */
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
      const fields = schema !== undefined && unwrap(schema) instanceof z.ZodObject;
      const object: Record<string, unknown> = Object.create(null);
      for (const [key, { value }] of tree.entries) {
        const input = inputOf(value, childOf(schema, key));
        // An empty field counts as absent; an empty mapping entry or an unknown key does not.
        if (input !== null || !fields || childOf(schema, key) === undefined) object[key] = input;
      }
      return object;
    }
  }
}

/** All field names: the only words an excerpt shows of a file that is not YAML, where any other text may be a value. */
function schemaWords(schema: z.core.$ZodType, words: Set<string> = new Set()): ReadonlySet<string> {
  const inner = unwrap(schema);
  for (const field of fieldNames(inner)) {
    words.add(field);
    const child = childOf(inner, field);
    if (child !== undefined) schemaWords(child, words);
  }
  if (inner instanceof z.ZodRecord) schemaWords(inner.valueType, words);
  if (inner instanceof z.ZodArray) schemaWords(inner.element, words);
  return words;
}

/** Converts marks to distinct faults in file order; `more` counts those beyond MAX_FAULTS. */
function toFaults(
  file: string,
  source: SourceText,
  marks: readonly YamlPosition[],
  tree?: YamlMapping,
): { readonly faults: readonly ConfigFault[]; readonly more: number } {
  const spans = tree === undefined ? [] : visibleSpans(tree, fileSchema);
  const words = tree === undefined ? schemaWords(fileSchema) : new Set<string>();
  const texts = new Map<string, { readonly at: number; readonly message: string }>();
  for (const { at, path = [], message } of marks) {
    const where = pathText(path, tree, fileSchema);
    const text = where === '' ? message : `${where}: ${message}`;
    texts.set(`${at} ${text}`, { at, message: text });
  }
  const sorted = [...texts.values()].sort((a, b) => a.at - b.at);
  const faults = sorted.slice(0, MAX_FAULTS).map(({ at, message }) => {
    const { line, column } = source.locate(at);
    return { file, line, column, message, excerpt: drawExcerpt(source, at, spans, words) };
  });
  return { faults, more: sorted.length - faults.length };
}

function configError(...args: Parameters<typeof toFaults>): ConfigError {
  const { faults, more } = toFaults(...args);
  return new ConfigError(faults, more);
}

function portOverride(env: NodeJS.ProcessEnv): ScalarResult<number> | undefined {
  const text = env['PORT']?.trim();
  if (text === undefined || text === '') return undefined;
  const port = readInteger(text);
  return port.ok && port.value >= 0 && port.value <= 65_535
    ? port
    : rejected('the environment variable PORT must be a whole number from 0 to 65535');
}

/**
 * @param text the file content
 * @param file its name, for messages
 * @param env source of `${NAME}`; `PORT`, if set, overrides `listen.port`
 * @param fileValues source of `${file:PATH}`; by default the files are read now
 * @throws ConfigError with every fault
 */
export function parseConfig(
  text: string,
  file: string,
  env: NodeJS.ProcessEnv,
  fileValues: FileValues = new ReferencedFiles(file),
): Config {
  const source = new SourceText(text);
  const { tree, marks: found, files } = readTree(text, env, fileValues);
  if (tree === undefined) throw configError(file, source, found);
  const port = portOverride(env);
  const place = findNode(tree, ['listen', 'port']) ?? findNode(tree, ['listen']);
  const at = (place?.key ?? place?.node.span)?.start ?? 0;
  const parsed = fileSchema.safeParse(inputOf(tree, fileSchema));
  const issues = parsed.error?.issues ?? [];
  const references = checkReferences(tree, port?.ok ? port.value : undefined, env);
  const marks = [
    ...found,
    ...(port === undefined || port.ok ? [] : [{ at, path: ['listen', 'port'], message: port.fault }]),
    ...nameMarks(tree, fileSchema),
    ...issues.flatMap((issue) => issueMarks(issue, tree, fileSchema)),
    ...references.faults,
  ];
  if (!parsed.success || marks.length > 0) throw configError(file, source, marks, tree);

  const { listen, admin, store, redis, secret, usage, workers, public_url, tiers, ...rest } = parsed.data;
  const { proxy: _proxy, tls: _tls, ...dynamic } = rest;
  const { tls, ...address } = listen;
  const bound = {
    ...address,
    ...(port?.ok ? { port: port.value } : {}),
    ...(tls === undefined ? {} : { tls: true as const }),
  };
  const meaning = {
    static: {
      listen: bound,
      admin,
      store,
      ...(redis === undefined ? {} : { redis }),
      ...(secret === undefined ? {} : { secret }),
      ...(usage === undefined ? {} : { usage }),
      workers,
    },
    dynamic: {
      ...dynamic,
      ...resolveOutbound(parsed.data, env),
      public_url: public_url ?? httpUrl(bound.host, bound.port, bound.tls),
      tiers: tiers ?? Object.fromEntries(TIERS.map((tier) => [tier, {}])),
      ...(tls === undefined ? {} : { certificate: tls }),
    },
  };
  return {
    file,
    hash: hashOf(meaning),
    ...meaning,
    files: [...files],
    warnings: toFaults(file, source, references.warnings, tree).faults,
  };
}

/** Gives each upstream the rules of its proxy and a complete `tls`. Where all is direct, nothing is added. */
function resolveOutbound(
  { proxy, tls, upstreams }: z.output<typeof fileSchema>,
  env: NodeJS.ProcessEnv,
): Pick<DynamicConfig, 'upstreams' | 'outbound'> {
  const outbound = (rules: OutboundRules) => {
    const all = { ...rules, ...(tls === undefined ? {} : { tls }) };
    return Object.keys(all).length === 0 ? {} : { outbound: all };
  };
  const rulesOf = (own: string | undefined): OutboundRules => {
    if (own !== undefined && own !== 'none') return { http: own, https: own, always: true };
    const rules = proxyRules(own ?? proxy, env);
    // A fault of the environment was reported.
    return rules.ok ? rules.value : {};
  };
  const resolved: Record<string, UpstreamConfig> = Object.create(null);
  for (const [name, upstream] of Object.entries(upstreams)) {
    if (upstream.kind === 'builtin') resolved[name] = upstream;
    else {
      const { proxy: own, tls: ownTls, ...rest } = upstream;
      const complete = { ...tls, ...ownTls };
      const isTls = Object.keys(complete).length > 0;
      resolved[name] = { ...rest, ...(isTls ? { tls: complete } : {}), ...outbound(rulesOf(own)) };
    }
  }
  return { upstreams: resolved, ...outbound(rulesOf(undefined)) };
}

/** Position of the first byte that is not UTF-8. */
function firstInvalid(bytes: Buffer): { line: number; column: number } {
  for (let line = 1, start = 0; ; line += 1) {
    const newline = bytes.indexOf(10, start);
    const text = bytes.subarray(start, newline === -1 ? bytes.length : newline);
    // Decoding replaces the first invalid byte of the line with U+FFFD.
    if (newline === -1 || !isUtf8(text)) return { line, column: text.toString().indexOf('\ufffd') + 1 };
    start = newline + 1;
  }
}

/**
 * @param bytes the file content; more than MAX_FILE bytes is a fault
 * @param file its name, for messages
 * @param env as in `parseConfig`
 * @param fileValues as in `parseConfig`
 * @throws ConfigError with every fault
 */
export function parseBytes(
  bytes: Buffer,
  file: string,
  env: NodeJS.ProcessEnv,
  fileValues?: FileValues,
): Config {
  if (bytes.length > MAX_FILE) throw fileFault(file, 'is larger than 1 MiB');
  if (!isUtf8(bytes)) {
    const { line, column } = firstInvalid(bytes);
    throw fileFault(file, 'is not UTF-8 here', line, column);
  }
  return parseConfig(new TextDecoder().decode(bytes), file, env, fileValues);
}

/**
 * Reads and validates a configuration file, synchronously.
 *
 * @param file path of a YAML file of at most 1 MiB
 * @param env source of `${NAME}`; `PORT`, if set, overrides `listen.port`
 * @throws ConfigError with every fault; an unreadable file is one fault at 1:1
 */
export function loadConfig(file: string, env: NodeJS.ProcessEnv): Config {
  return parseBytes(readConfigFile(file).bytes, file, env);
}
