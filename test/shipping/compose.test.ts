// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the files look like placeholders
// examples/compose.yaml and what it mounts, by strict schemas and by rules, because no engine is at hand to ask; the rules
// are also shown to fail.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Config } from '../../src/config/schema.ts';
import { checkedConfig, variablesOf } from './checked-config.ts';
import { misfits, mountedPaths } from './compose-rules.ts';
import { composeFile, dashboards, datasources } from './compose-shape.ts';
import { readDockerfile, variables } from './dockerfile.ts';
import { faultsOf } from './shapes.ts';
import { at, changed, entries, items, textAt } from './tree.ts';

const EXAMPLES = new URL('../../examples/', import.meta.url);
const path = (file: string): URL => new URL(file, EXAMPLES);
const read = (file: string): string => readFileSync(path(file), 'utf8');

const text = read('compose.yaml');
const hasMonitoring = existsSync(path('prometheus'));
const compose: unknown = parse(text, { merge: true });
const configText = read('compose/config.yaml');
const given = entries(compose, 'services', 'gateway', 'environment').map(([name]) => name);
const image = readDockerfile(read('../Dockerfile')).at(-1);

let config: Config;
beforeAll(async () => {
  config = await checkedConfig(configText, given, image && variables(image));
});

describe('compose.yaml', () => {
  test('has only fields of the Compose Specification', () => {
    expect(faultsOf(composeFile, compose)).toEqual([]);
  });

  test.each<[string, readonly (string | number)[], unknown]>([
    ['a mistyped field', ['services', 'redis', 'netwoks'], ['back']],
    ['a field at the wrong level', ['services', 'gateway', 'replicas'], 2],
    ['a number in the environment', ['services', 'redis', 'environment', 'PORT'], 6379],
    ['a time without a unit', ['services', 'redis', 'healthcheck', 'timeout'], '3'],
    ['an image without a version', ['services', 'redis', 'image'], 'redis'],
    ['a condition that there is not', ['services', 'gateway', 'depends_on', 'redis', 'condition'], 'healthy'],
  ])('the schema refuses %s', (_name, where, to) => {
    expect(faultsOf(composeFile, changed(compose, where, to))).not.toEqual([]);
  });

  test('what it says fits together', () => {
    expect(misfits(compose, config)).toEqual([]);
  });

  test('every variable of it must be set by whoever starts it, and the opening comment sets them all', () => {
    const code = text.replaceAll(/^\s*#.*$/gm, '').replaceAll('$$', '');
    const all = [...code.matchAll(/\$\{?(\w+)/g)].map(([, name = '']) => name);
    const required = [...code.matchAll(/\$\{(\w+):\?[^}]+\}/g)].map(([, name = '']) => name);
    expect(all.length).toBeGreaterThan(3);
    expect(required).toEqual(all);
    const [, listed = ''] = /# +for name in ([A-Z_ ]+);/.exec(text) ?? [];
    expect(listed.split(' ').sort()).toEqual([...new Set(all)].sort());
  });

  test('what it builds and mounts is there', () => {
    expect(existsSync(path(`${textAt(compose, 'services', 'gateway', 'build', 'context')}/Dockerfile`))).toBe(
      true,
    );
    const paths = mountedPaths(compose);
    expect(paths.length).toBeGreaterThan(3);
    // Of a checkout without monitoring everything else is asked for; with it, all of it.
    const asked = hasMonitoring ? paths : paths.filter((each) => !/^\.\/(prometheus|grafana)\b/.test(each));
    expect(asked.filter((each) => !existsSync(path(each)))).toEqual([]);
    expect(statSync(path('compose')).isDirectory()).toBe(true);
  });

  test.each<[string, readonly (string | number)[], unknown]>([
    ['grafana: may write to its root file system', ['grafana', 'read_only'], undefined],
    ['redis: keeps capabilities', ['redis', 'cap_drop'], ['NET_RAW']],
    ['redis: no limit of memory', ['redis', 'deploy', 'resources', 'limits', 'memory'], undefined],
    ['redis: no healthcheck', ['redis', 'healthcheck'], undefined],
    ['gateway: waits for redis in vain', ['redis', 'healthcheck'], undefined],
    ['gateway: is published to the world', ['gateway', 'ports', 0], '8080-8081:8080'],
    ['gateway: not as many ports as replicas', ['gateway', 'ports', 0], '127.0.0.1:8080:8080'],
    ['gateway: publishes 9090', ['gateway', 'ports', 0], '127.0.0.1:9090-9091:9090'],
    ['gateway: not two', ['gateway', 'deploy', 'replicas'], 1],
    ['gateway: may write to ./compose', ['gateway', 'volumes', 0], './compose:/etc/tollgate'],
    [
      'gateway: its configuration is in no mounted folder',
      ['gateway', 'volumes', 0],
      './compose/config.yaml:/etc/tollgate/config.yaml:ro',
    ],
    ['gateway: is killed before it has drained', ['gateway', 'stop_grace_period'], '35s'],
    [
      'gateway: DB_PASSWORD has a value or a default',
      ['gateway', 'environment', 'DB_PASSWORD'],
      '${DB_PASSWORD:-x}',
    ],
    ['gateway: does not reach redis', ['gateway', 'networks'], ['front']],
    ['redis: can be reached from outside', ['redis', 'networks'], ['back', 'front']],
    ['postgres: no network inside', ['postgres', 'networks', 0], 'inside'],
  ])('is noticed: %s', (finding, where, to) => {
    expect(misfits(changed(compose, ['services', ...where], to), config)).toContain(finding);
  });
});

describe('what it mounts', () => {
  test.skipIf(!hasMonitoring)(
    'Prometheus asks the admin port of the gateways, every replica for itself',
    () => {
      const file: unknown = parse(read('prometheus/prometheus.yaml'));
      const jobs = items(file, 'scrape_configs');
      const byName = jobs.flatMap((job) => items(job, 'dns_sd_configs'));
      const asked = byName.find((each) => items(each, 'names').includes('gateway'));
      expect([at(asked, 'type'), at(asked, 'port')]).toEqual(['A', config.static.admin.port]);
      for (const rules of items(file, 'rule_files').map(String)) {
        expect(existsSync(path(`prometheus/${rules.replace('/etc/prometheus/', '')}`)), rules).toBe(true);
      }
    },
  );

  test('the configuration is good, without a warning, and takes what the gateways are given or the image sets', () => {
    expect(config.warnings).toEqual([]);
    const set = [...given, ...Object.keys((image && variables(image)) ?? {})];
    expect(variablesOf(configText).filter((name) => !set.includes(name))).toEqual([]);
    expect(given.filter((name) => !variablesOf(configText).includes(name))).toEqual([]);
    expect(config.static.listen.host).toBe('0.0.0.0');
    expect(faultsOf(JSON.parse(read('../config.schema.json')), parse(configText))).toEqual([]);
  });

  test('Grafana finds Prometheus, and its dashboards where they are mounted', () => {
    const sources: unknown = parse(read('compose/grafana/datasource.yaml'));
    const providers: unknown = parse(read('compose/grafana/dashboards.yaml'));
    expect(faultsOf(datasources, sources)).toEqual([]);
    expect(faultsOf(dashboards, providers)).toEqual([]);
    const url = new URL(textAt(sources, 'datasources', 0, 'url'));
    expect(at(compose, 'services', url.hostname)).toBeDefined();
    const [published = ''] = items(compose, 'services', url.hostname, 'ports').map(String);
    expect(published).toMatch(new RegExp(`:${url.port}$`));
    const folder = textAt(providers, 'providers', 0, 'options', 'path');
    const mounts = items(compose, 'services', 'grafana', 'volumes').map(String);
    expect(mounts).toContainEqual(expect.stringMatching(new RegExp(`^\\./grafana/.*\\.json:${folder}/`)));
  });
});
