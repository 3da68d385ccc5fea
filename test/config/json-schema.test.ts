// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// The files made from the schema are current, and the JSON Schema says of a file what the gateway says of it.
import { readdirSync, readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load-config.ts';
import { dynamicShape, staticShape, TIERS } from '../../src/config/schema/config-schema.ts';
import { fieldRows, fillReference } from '../../tools/configuration-tables.ts';
import { jsonSchema } from '../../tools/json-schema.ts';
import { errorOf, load, MINIMAL } from './sample.ts';

const root = new URL('../../', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), 'utf8');
const validate = new Ajv({ strict: true, strictRequired: false, allowUnionTypes: true }).compile(
  jsonSchema(),
);
/** As an editor reads it: YAML 1.2 with numbers, booleans and null. */
const accepts = (text: string): boolean => validate(parse(text));

const SHIPPED = [
  'config.yaml',
  ...readdirSync(new URL('examples/', root))
    // compose.yaml starts gateways and configures none.
    .filter((name) => name.endsWith('.yaml') && name !== 'compose.yaml')
    .map((name) => `examples/${name}`),
];

describe('config.schema.json', () => {
  it('is made from the schema as it is now (npm run schema)', () => {
    expect(read('config.schema.json')).toBe(`${JSON.stringify(jsonSchema(), null, 2)}\n`);
  });

  it.each([
    MINIMAL,
    `listen: { host: 127.0.0.1, port: 0 }\n${MINIMAL}`,
    `redis: "\${R:-}"\nretry: { budget: 1 }\n${MINIMAL}`,
    `listen: { port: "8080" }\nretry: { after_send: "true" }\n${MINIMAL}`,
    `retry: { attempts: "\${A:-3}", after_send: "\${B:-false}" }\ndrain: { timeout: "\${C:-3}s" }\n${MINIMAL}`,
    MINIMAL.replace('model: echo', 'model: 1.10'),
    MINIMAL.replace('model: echo', 'model: true'),
    MINIMAL.replace('builtin: echo', 'builtin: "${X:-echo}"'),
    'upstreams: { u: { base_url: https://a.example, headers: { a: 1 }, query: { b: 2024-10-21, c: true } } }\nmodels: { m: { targets: [{ upstream: u, model: x, weight: 0.5 }], price: { input: 1, output: 2.5 } } }',
    MINIMAL.replace(
      'model: echo',
      'model: echo, body: { set: { a: [1, { b: ~ }], c: }, default: { "d.e": "1" }, rename: { f: g } }',
    ),
    `currency: EUR\ntiers: { Free: { budget: { per_day: 5 EUR, per_month: eur 50.5 } } }\n${MINIMAL.replace('targets', 'price: { input: 1, output: 1 }, targets')}`,
    `max_body: 512MiB\ntiers: { Free: { concurrency: 1 }, Pro: {} }\n${MINIMAL}`,
  ])('accepts what the gateway accepts: %j', (text) => {
    load(text);
    expect(accepts(text)).toBe(true);
  });

  it.each([
    `lissten: {}\n${MINIMAL}`,
    `listen:\n${MINIMAL}`,
    `tiers: { Free: { budget: { per_day: 5 euros } } }\n${MINIMAL}`,
    `redis: ~\n${MINIMAL}`,
    `retry: { attempts: , budget: 1 }\n${MINIMAL}`,
    `tiers: { Free: { tokens_per_day: null } }\n${MINIMAL}`,
    `listen: { prot: 1 }\n${MINIMAL}`,
    `listen: { port: 70000 }\n${MINIMAL}`,
    `listen: { port: [1] }\n${MINIMAL}`,
    `retry: { after_send: on }\n${MINIMAL}`,
    `retry: { budget: 2 }\n${MINIMAL}`,
    `max_body: 32\n${MINIMAL}`,
    `drain: { timeout: 30 }\n${MINIMAL}`,
    `tiers: { free: {} }\n${MINIMAL}`,
    `tiers: { Free: { concurrency: 0 } }\n${MINIMAL}`,
    `store: mysql://h/x\n${MINIMAL}`,
    'models: { m: { targets: [{ upstream: u, model: x }] } }',
    'upstreams: { u: {} }\nmodels: { m: { targets: [{ upstream: u, model: x }] } }',
    'upstreams: { u: { builtin: echo, base_url: https://a.example } }\nmodels: { m: { targets: [{ upstream: u, model: x }] } }',
    'upstreams: { u: { builtin: ecco } }\nmodels: { m: { targets: [{ upstream: u, model: x }] } }',
    'upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: [] } }',
    'upstreams: { u: { builtin: echo } }\nmodels: { m: { targets: [{ model: x }] } }',
    'upstreams: { u: { builtin: echo } }\nmodels: { m: }',
  ])('refuses what the gateway refuses: %j', (text) => {
    errorOf(() => load(text));
    expect(accepts(text)).toBe(false);
  });
});

describe('a configuration that comes with the gateway', () => {
  it('are seven', () => expect(SHIPPED).toHaveLength(7));

  it.each(SHIPPED)('%s is valid for the gateway and for an editor, without warnings', (path) => {
    const text = read(path);
    const names = [...text.matchAll(/(?<=\$\{)[A-Z0-9_]+(?=\})/g)].map(([name]) => name);
    const sample = (name: string) => {
      if (name === 'REDIS_URL') return 'redis://name.example';
      return name.endsWith('_URL') ? 'https://name.example' : 'dummy'.repeat(8);
    };
    const env = Object.fromEntries(names.map((name) => [name, sample(name)]));
    const config = loadConfig(new URL(path, root).pathname, env);
    expect(config.warnings).toEqual([]);
    expect(validate(parse(text)), JSON.stringify(validate.errors)).toBe(true);
    expect(text).toMatch(/^# yaml-language-server: \$schema=(\.\.?)\/config\.schema\.json\n/);
  });

  it('works without any environment, where it is config.yaml', () => {
    const config = loadConfig(new URL('config.yaml', root).pathname, {});
    expect(config.static.listen).toEqual({
      host: '127.0.0.1',
      port: 8080,
      trusted_proxies: [],
      keep_alive: 75_000,
    });
    expect(Object.keys(config.dynamic.models)).toEqual(['echo']);
    expect(loadConfig(new URL('config.yaml', root).pathname, { HOST: '0.0.0.0' }).static.listen.host).toBe(
      '0.0.0.0',
    );
  });
});

describe('docs/configuration.md', () => {
  const page = read('docs/configuration.md');

  it('has every field as the schema has it (node tools/configuration-tables.ts docs/configuration.md)', () => {
    expect(fillReference(page)).toBe(page);
  });

  it('lists the fields of the JSON Schema, all and no others', () => {
    type Node = { [key: string]: unknown };
    const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null;
    const paths = new Set<string>();
    const walk = (schema: unknown, path: string): void => {
      if (!isNode(schema)) return;
      if (Array.isArray(schema['anyOf'])) for (const kind of schema['anyOf']) walk(kind, path);
      if (isNode(schema['properties'])) {
        for (const [name, child] of Object.entries(schema['properties'])) {
          const below = path + (TIERS.some((tier) => tier === name) ? 'TIER' : name);
          paths.add(below);
          walk(child, `${below}.`);
        }
      }
      if (isNode(schema['additionalProperties'])) walk(schema['additionalProperties'], `${path}NAME.`);
      if (isNode(schema['items'])) walk(schema['items'], `${path.slice(0, -1)}[].`);
    };
    walk(jsonSchema(), '');
    const documented = [...page.matchAll(/^\| `([^`]+)` \|/gm)]
      .map(([, path]) => path ?? '')
      .filter((path) => !path.startsWith('$'));
    // One price and a price in a list have the same fields.
    const single = [...paths].filter(
      (path) => !paths.has(path.replace('.price[].', '.price.')) || !path.includes('.price[].'),
    );
    expect(documented.toSorted()).toEqual(single.toSorted());
    const rows = [...fieldRows(staticShape), ...fieldRows(dynamicShape)];
    expect(rows.map(({ path }) => path)).toEqual(documented);
    expect(rows.filter(({ description }) => description === '')).toEqual([]);
  });

  it('has an example that is valid, and one of a fault as it is reported', () => {
    const [smallest = '', fault] = [...page.matchAll(/```(?:yaml)?\n([^`]*(?:`[^`]+`[^`]*)*)```/g)].map(
      ([, text]) => text,
    );
    expect(Object.keys(load(smallest).dynamic.models)).toEqual(['echo']);
    const broken = smallest.replace('upstream: demo', 'upstream: dmo');
    expect(fault).toBe(`${errorOf(() => load(broken)).message}\n`);
  });
});
