// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the files look like placeholders
// examples/compose.yaml and what it mounts, by strict schemas and by rules, because no engine is at hand to ask; the rules
// are also shown to fail.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import type { Config } from '../../src/config/schema/config-schema.ts';
import { checkedConfig, variablesOf } from './checked-config.ts';
import { gatewaysOf, misfits, mountedPaths } from './compose-rules.ts';
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
const given = entries(compose, 'services', 'tollgate-1', 'environment').map(([name]) => name);
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
    ['a field at the wrong level', ['services', 'tollgate-1', 'limits'], {}],
    ['a number in the environment', ['services', 'redis', 'environment', 'PORT'], 6379],
    ['a time without a unit', ['services', 'redis', 'healthcheck', 'timeout'], '3'],
    ['an image without a version', ['services', 'redis', 'image'], 'redis'],
    [
      'a condition that there is not',
      ['services', 'tollgate-1', 'depends_on', 'redis', 'condition'],
      'healthy',
    ],
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
    expect(
      existsSync(path(`${textAt(compose, 'services', 'tollgate-1', 'build', 'context')}/Dockerfile`)),
    ).toBe(true);
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
    ['tollgate-1: waits for redis in vain', ['redis', 'healthcheck'], undefined],
    ['tollgate-1: is published to the world', ['tollgate-1', 'ports', 0], '8080:8080'],
    ['tollgate-2: takes port 8081 again', ['tollgate-1', 'ports', 0], '127.0.0.1:8081:8080'],
    ['tollgate-1: publishes 9090', ['tollgate-1', 'ports', 0], '127.0.0.1:9090:9090'],
    ['not two gateways', ['tollgate-2'], undefined],
    ['tollgate-1: may write to ./compose', ['tollgate-1', 'volumes', 0], './compose:/etc/tollgate'],
    [
      'tollgate-1: its configuration is in no mounted folder',
      ['tollgate-1', 'volumes', 0],
      './compose/config.yaml:/etc/tollgate/config.yaml:ro',
    ],
    ['tollgate-1: is killed before it has drained', ['tollgate-1', 'stop_grace_period'], '35s'],
    [
      'tollgate-1: DB_PASSWORD has a value or a default',
      ['tollgate-1', 'environment', 'DB_PASSWORD'],
      '${DB_PASSWORD:-x}',
    ],
    ['tollgate-1: does not reach redis', ['tollgate-1', 'networks'], ['front']],
    ['redis: can be reached from outside', ['redis', 'networks'], ['back', 'front']],
    ['redis: is not pinned by digest', ['redis', 'image'], 'redis:8.8.1'],
    ['redis: any version', ['redis', 'image'], 'redis:latest'],
    ['postgres: no network inside', ['postgres', 'networks', 0], 'inside'],
  ])('is noticed: %s', (finding, where, to) => {
    expect(misfits(changed(compose, ['services', ...where], to), config)).toContain(finding);
  });
});

describe('what it mounts', () => {
  test.skipIf(!hasMonitoring)(
    'Prometheus asks the admin port of every gateway for itself, and finds its rules',
    () => {
      const file: unknown = parse(read('prometheus/prometheus.yaml'));
      const targets = items(file, 'scrape_configs')
        .flatMap((job) => items(job, 'static_configs'))
        .flatMap((each) => items(each, 'targets'));
      const asked = gatewaysOf(compose).map((name) => `${name}:${config.static.admin.port}`);
      expect(targets).toEqual(expect.arrayContaining(asked));
      const files = items(file, 'rule_files').map(String);
      expect(files.filter((each) => !existsSync(path(`prometheus/${each}`)))).toEqual([]);
      const words = items(compose, 'services', 'prometheus', 'command').map(String);
      expect(words).toContain('--config.file=/etc/prometheus/prometheus.yaml');
    },
  );

  test('the configuration is good, without a warning, and takes what the gateways are given or the image sets', () => {
    expect(config.warnings).toEqual([]);
    const set = [...given, ...Object.keys((image && variables(image)) ?? {})];
    expect(variablesOf(configText).filter((name) => !set.includes(name))).toEqual([]);
    // Where temporary files are is for the process to know, and no field of the configuration.
    const used = [...variablesOf(configText), 'TMPDIR'];
    expect(given.filter((name) => !used.includes(name))).toEqual([]);
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
