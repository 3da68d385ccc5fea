// Parses and validates a configuration file, and reports all of its faults at once.
import { isUtf8 } from 'node:buffer';
import type { z } from 'zod';
import { litellmFault } from './check/litellm.ts';
import { checkReferences } from './check/reference-check.ts';
import { ConfigError, MAX_FAULTS } from './config-fault.ts';
import { hashOf } from './config-hash.ts';
import { PriceLists } from './price-lists.ts';
import { httpUrl } from './schema/addresses.ts';
import {
  type Config,
  type DynamicConfig,
  fileSchema,
  TIERS,
  type UpstreamConfig,
} from './schema/config-schema.ts';
import { ENDPOINTS_OF } from './schema/endpoint-names.ts';
import type { OutboundRules } from './schema/outbound-schema.ts';
import { readInteger, rejected, type ScalarResult } from './schema/units.ts';
import { fileFault, MAX_FILE, readConfigFile } from './source/config-file.ts';
import { proxyRules } from './source/outbound-rules.ts';
import { type FileValues, ReferencedFiles } from './source/referenced-files.ts';
import { SchemaFile } from './source/schema-file.ts';

export { ConfigError, type ConfigFault, formatFault } from './config-fault.ts';

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
  const source = new SchemaFile(text, file, fileSchema, env, fileValues);
  const { tree, output } = source;
  const foreign = litellmFault(tree);
  if (foreign !== undefined) throw source.errorOf([foreign]);
  const port = portOverride(env);
  const references = checkReferences(tree, text, port, env);
  const lists = new PriceLists(tree, env, fileValues);
  const marks = [...source.marks, ...references.faults, ...lists.marks];
  if (output === undefined || marks.length > 0 || lists.faults.length > 0) {
    const { faults, more } = source.errorOf(marks);
    const all = [...faults, ...lists.faults];
    const rest = all.length - MAX_FAULTS;
    throw new ConfigError(all.slice(0, MAX_FAULTS), more + lists.more + Math.max(0, rest));
  }

  const { listen, admin, store, redis, secret, usage, workers, public_url, tiers, ...rest } = output;
  const { proxy: _proxy, tls: _tls, prices: _files, ...dynamic } = rest;
  const { tls, ...address } = listen;
  const { tls: adminTls, ...adminAddress } = admin;
  const bound = {
    ...address,
    ...(port?.ok ? { port: port.value } : {}),
    ...(tls === undefined ? {} : { tls: true as const }),
  };
  const meaning = {
    static: {
      listen: bound,
      admin: { ...adminAddress, ...(adminTls === undefined ? {} : { tls: true as const }) },
      store,
      ...(redis === undefined ? {} : { redis }),
      ...(secret === undefined ? {} : { secret }),
      ...(usage === undefined ? {} : { usage }),
      workers,
    },
    dynamic: {
      ...dynamic,
      ...resolveOutbound(output, env),
      models: withProtocols(output),
      ...(lists.prices === undefined ? {} : { prices: lists.prices }),
      public_url: public_url ?? httpUrl(bound.host, bound.port, bound.tls),
      tiers: tiers ?? Object.fromEntries(TIERS.map((tier) => [tier, {}])),
      ...(tls === undefined ? {} : { certificate: tls }),
      ...(adminTls === undefined ? {} : { admin_certificate: adminTls }),
    },
  };
  return {
    file,
    hash: hashOf(meaning),
    ...meaning,
    files: [...new Set([...source.files, ...lists.files])],
    warnings: [...source.faultsOf(references.warnings), ...lists.warnings],
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

/** Restricts each model to the endpoints of the API that its upstreams speak; the checks have found that it is one. */
function withProtocols({ upstreams, models }: z.output<typeof fileSchema>): DynamicConfig['models'] {
  const resolved: DynamicConfig['models'] = Object.create(null);
  for (const [name, model] of Object.entries(models)) {
    const offered = ENDPOINTS_OF[upstreams[model.targets[0]?.upstream ?? '']?.protocol ?? 'openai'];
    resolved[name] = { ...model, endpoints: model.endpoints.filter((each) => offered.includes(each)) };
  }
  return resolved;
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
  // What `>` of PowerShell writes: its zeros are UTF-8, too.
  if (bytes.subarray(0, 4).includes(0)) throw fileFault(file, 'is UTF-16: save it as UTF-8', 1, 1);
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
