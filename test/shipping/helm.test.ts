// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// examples/helm/tollgate as Helm renders it, held to the rules of examples/kubernetes, and what its values and its configuration change.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Ajv } from 'ajv';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { loadConfig } from '../../src/config/load-config.ts';
import { runCommand } from '../helpers/gateway.ts';
import { GO_BUILD_MS } from '../helpers/go-program.ts';
import { helmProgram } from '../helpers/helm-program.ts';
import { type TempDir, tempDir } from '../helpers/wait.ts';
import { misfits } from './kubernetes-rules.ts';
import { kinds } from './kubernetes-shape.ts';
import { faultsOf } from './shapes.ts';
import { at, changed, items, numberAt, textAt } from './tree.ts';

const CHART = fileURLToPath(new URL('../../examples/helm/tollgate/', import.meta.url));
const values: unknown = parse(readFileSync(`${CHART}values.yaml`, 'utf8'));
const CONFIG = textAt(values, 'config');
const SECRETS = '/run/secrets/tollgate';

let helm: string | undefined;
let directory: TempDir;

beforeAll(async () => {
  directory = await tempDir();
  helm = await helmProgram();
}, GO_BUILD_MS);
afterAll(() => directory?.remove());
beforeEach(({ skip }) => {
  if (helm === undefined) skip('helm is not there, and could not be built');
});

type Path = readonly (string | number)[];
type Change = readonly [path: Path, value: unknown];

let runs = 0;

async function run(command: readonly string[], changes: readonly Change[]): Promise<string> {
  if (helm === undefined) throw new Error('helm is not there, and could not be built');
  runs += 1;
  const file = directory.file(`values-${runs}.yaml`);
  await writeFile(file, stringify(changes.reduce((all, [path, to]) => changed(all, path, to), values)));
  const flags = ['--values', file, '--kube-version', '1.33.0'];
  const env = { ...process.env, HELM_CACHE_HOME: directory.path, HELM_CONFIG_HOME: directory.path };
  const { stdout } = await promisify(execFile)(helm, [...command, ...flags], { env });
  return stdout;
}

/** The objects of a release. */
async function render(changes: readonly Change[] = [], release = 'tollgate'): Promise<readonly unknown[]> {
  const text = await run(['template', release, CHART, '--namespace', 'llm'], changes);
  return parseAllDocuments(text).map((document): unknown => document.toJS());
}

const kindOf = (object: unknown): string => `${textAt(object, 'apiVersion')} ${textAt(object, 'kind')}`;
const one = (objects: readonly unknown[], kind: string): unknown =>
  objects.find((object) => at(object, 'kind') === kind);
const podOf = (objects: readonly unknown[]): unknown =>
  at(one(objects, 'Deployment'), 'spec', 'template', 'spec');
const containerOf = (objects: readonly unknown[]): unknown => at(podOf(objects), 'containers', 0);
const PROBES = ['startupProbe', 'livenessProbe', 'readinessProbe'];
const withConfig = (text: string): Change => [['config'], text];

/** The shape of every object, and the names that the API server would refuse. */
function shapeFaults(objects: readonly unknown[]): readonly string[] {
  return objects.flatMap((object) => {
    const kind = kindOf(object);
    return kind in kinds ? faultsOf(kinds[kind] ?? {}, object).map((fault) => `${kind} ${fault}`) : [kind];
  });
}

describe('the chart', () => {
  test('is linted without a warning', async () => {
    expect(await run(['lint', CHART, '--strict', '--quiet'], [])).toBe('');
  });

  test('has a schema that knows every value and no other', () => {
    const schema: object = JSON.parse(readFileSync(`${CHART}values.schema.json`, 'utf8'));
    const validate = new Ajv({ strict: true, strictRequired: false, allowUnionTypes: true }).compile(schema);
    expect(validate(values), JSON.stringify(validate.errors)).toBe(true);
    expect(validate({ ...Object.assign({}, values), replica: 2 })).toBe(false);
  });

  test.each<[string, Change]>([
    ['a mistyped value', [['replcas'], 2]],
    ['no clients', [['networkPolicy', 'clients'], []]],
    ['anybody as a client', [['networkPolicy', 'clients'], [{}]]],
    ['a number as text', [['autoscaling', 'minReplicas'], '2']],
    ['a digest that is none', [['image', 'digest'], 'latest']],
    ['a quantity that is none', [['resources', 'limits', 'memory'], '1GB']],
    ['a configuration that is no text', [['config'], { listen: {} }]],
  ])('refuses %s by its schema', async (_name, change) => {
    await expect(render([change])).rejects.toThrow(/values don't meet the specifications/);
  });

  test.each<[string, Change, string]>([
    ['a listener inside of the pod', withConfig('listen: { port: 8080 }'), 'listen.host is 127.0.0.1'],
    [
      'an admin listener inside of the pod',
      withConfig('listen: { host: "::" }\n'),
      'admin.host is 127.0.0.1',
    ],
    [
      'a port of the environment',
      withConfig(CONFIG.replace('port: 8080', 'port: "${PORT}"')),
      'listen.port has to be a number',
    ],
    [
      'a drain of the environment',
      withConfig(CONFIG.replace('timeout: 60s', 'timeout: "${D}"')),
      'drain.timeout has to be a duration',
    ],
    ['what is no YAML', withConfig('listen: [}'), 'config is not YAML'],
    ['several replicas on one volume', [['data', 'existingClaim'], 'store'], 'for a single replica'],
  ])('refuses %s with a sentence', async (_name, change, sentence) => {
    await expect(render([change])).rejects.toThrow(sentence);
  });
});

describe('a release', () => {
  let objects: readonly unknown[];
  beforeAll(async () => {
    if (helm !== undefined) objects = await render([[['serviceMonitor', 'enabled'], true]]);
  });

  test('has an object of each kind, with known fields only', () => {
    expect(objects.map((each) => at(each, 'kind')).toSorted()).toEqual([
      'ConfigMap',
      'Deployment',
      'HorizontalPodAutoscaler',
      'NetworkPolicy',
      'PodDisruptionBudget',
      'Service',
      'Service',
      'ServiceAccount',
      'ServiceMonitor',
    ]);
    expect(shapeFaults(objects)).toEqual([]);
  });

  test('fits together, and `check` takes its configuration, with each credential in a file of the secret', async () => {
    const text = textAt(one(objects, 'ConfigMap'), 'data', 'config.yaml');
    expect(text).toBe(CONFIG);
    const files = Array.from(text.matchAll(/\$\{file:([^}]+)\}/g), ([, file = '']) => file);
    expect(text.replaceAll(/\$\{file:/g, '')).not.toContain('${');
    const mount = items(containerOf(objects), 'volumeMounts').find(
      (each) => at(each, 'mountPath') === SECRETS,
    );
    const volume = items(podOf(objects), 'volumes').find((each) => at(each, 'name') === at(mount, 'name'));
    expect(at(volume, 'secret', 'secretName')).toBe('tollgate');
    expect(items(containerOf(objects), 'env')).toEqual([]);
    await mkdir(directory.file('secrets'));
    for (const file of files) {
      expect(file.startsWith(`${SECRETS}/`)).toBe(true);
      const name = file.slice(SECRETS.length + 1);
      const url = { DATABASE_URL: 'postgres://u:p@db.example/d', REDIS_URL: 'rediss://:p@redis.example' };
      await writeFile(directory.file(`secrets/${name}`), `${Reflect.get(url, name) ?? 'x'.repeat(40)}\n`);
    }
    const config = directory.file('config.yaml');
    await writeFile(config, text.replaceAll(SECRETS, directory.file('secrets')));
    const { code, stdout, stderr } = await runCommand(['check', '--offline', '--config', config]);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).not.toContain('warnings');
    expect(misfits(objects, loadConfig(config, {}), ['/metrics', '/livez', '/readyz'])).toEqual([]);
  });

  test('has the objects of examples/kubernetes, but for labels, secrets and the image', () => {
    const plain = parse(
      readFileSync(new URL('../../examples/kubernetes/deployment.yaml', import.meta.url), 'utf8'),
    );
    const same = (path: Path) => [at(one(objects, 'Deployment'), ...path), at(plain, ...path)];
    const CONTAINER = ['spec', 'template', 'spec', 'containers', 0];
    for (const path of [
      ['spec', 'strategy'],
      ['spec', 'template', 'spec', 'securityContext'],
      ['spec', 'template', 'spec', 'terminationGracePeriodSeconds'],
      ...['args', 'ports', 'startupProbe', 'livenessProbe', 'readinessProbe', 'lifecycle'].map((field) => [
        ...CONTAINER,
        field,
      ]),
      ...['resources', 'securityContext'].map((field) => [...CONTAINER, field]),
    ]) {
      const [rendered, written] = same(path);
      expect(rendered, path.join('.')).toEqual(written);
    }
  });

  test.each<[string, readonly Change[], (objects: readonly unknown[]) => unknown, unknown]>([
    [
      'the tag is that of the chart',
      [],
      (all) => at(containerOf(all), 'image'),
      expect.stringMatching(/:\d+\.\d+\.\d+$/),
    ],
    [
      'a tag',
      [[['image', 'tag'], 'x']],
      (all) => at(containerOf(all), 'image'),
      'registry.example.com/tollgate:x',
    ],
    [
      'a digest',
      [[['image', 'digest'], `sha256:${'0'.repeat(64)}`]],
      (all) => at(containerOf(all), 'image'),
      `registry.example.com/tollgate@sha256:${'0'.repeat(64)}`,
    ],
    [
      'secrets of a registry',
      [[['imagePullSecrets'], ['a']]],
      (all) => at(podOf(all), 'imagePullSecrets'),
      [{ name: 'a' }],
    ],
    [
      'no autoscaling',
      [[['autoscaling', 'enabled'], false]],
      (all) => [at(one(all, 'Deployment'), 'spec', 'replicas'), one(all, 'HorizontalPodAutoscaler')],
      [2, undefined],
    ],
    [
      'no budget',
      [[['podDisruptionBudget', 'enabled'], false]],
      (all) => one(all, 'PodDisruptionBudget'),
      undefined,
    ],
    ['no policy', [[['networkPolicy', 'enabled'], false]], (all) => one(all, 'NetworkPolicy'), undefined],
    ['no monitor by default', [], (all) => one(all, 'ServiceMonitor'), undefined],
    [
      'an account that exists',
      [[['serviceAccount'], { create: false, name: 'mine', annotations: {} }]],
      (all) => [at(podOf(all), 'serviceAccountName'), one(all, 'ServiceAccount')],
      ['mine', undefined],
    ],
    [
      'ports of the configuration',
      [withConfig(CONFIG.replace('port: 8080', 'port: 80').replace('port: 9090', 'port: 7000'))],
      (all) => items(containerOf(all), 'ports').map((each) => at(each, 'containerPort')),
      [80, 7000],
    ],
    [
      'a long drain',
      [withConfig(CONFIG.replace('delay: 5s, timeout: 60s', 'delay: 1500ms, timeout: 1h'))],
      (all) => numberAt(podOf(all), 'terminationGracePeriodSeconds'),
      5 + 2 + 3600 + 20,
    ],
    [
      'a drain in minutes, with the delay of the gateway',
      [withConfig(CONFIG.replace('delay: 5s, timeout: 60s', 'timeout: 2m'))],
      (all) => numberAt(podOf(all), 'terminationGracePeriodSeconds'),
      5 + 120 + 20,
    ],
    [
      'no drain in the configuration',
      [withConfig(CONFIG.replace(/^drain.*$/m, ''))],
      (all) => numberAt(podOf(all), 'terminationGracePeriodSeconds'),
      5 + 30 + 20,
    ],
    [
      'TLS on the admin listener, for probes and Prometheus',
      [
        withConfig(
          CONFIG.replace('port: 9090 }', 'port: 9090, tls: { cert: "${file:c}", key: ${file:k} } }'),
        ),
        [['serviceMonitor'], { enabled: true, interval: '15s', labels: {}, tlsConfig: { serverName: 'a' } }],
      ],
      (all) => [
        ...PROBES.map((probe) => at(containerOf(all), probe, 'httpGet', 'scheme')),
        at(one(all, 'ServiceMonitor'), 'spec', 'endpoints', 0, 'scheme'),
        at(one(all, 'ServiceMonitor'), 'spec', 'endpoints', 0, 'tlsConfig'),
      ],
      ['HTTPS', 'HTTPS', 'HTTPS', 'https', { serverName: 'a' }],
    ],
    [
      'another secret',
      [[['secretName'], 'mine']],
      (all) =>
        items(podOf(all), 'volumes')
          .map((each) => at(each, 'secret', 'secretName'))
          .find(Boolean),
      'mine',
    ],
    [
      'one replica on a volume',
      [
        [['data', 'existingClaim'], 'store'],
        [['autoscaling', 'enabled'], false],
        [['replicas'], 1],
      ],
      (all) => [
        at(one(all, 'Deployment'), 'spec', 'strategy'),
        items(podOf(all), 'volumes')
          .map((each) => at(each, 'persistentVolumeClaim', 'claimName'))
          .find(Boolean),
      ],
      [{ type: 'Recreate' }, 'store'],
    ],
    [
      'more labels, which select nothing',
      [[['podLabels'], { team: 'x' }]],
      (all) => [
        at(one(all, 'Deployment'), 'spec', 'template', 'metadata', 'labels', 'team'),
        at(one(all, 'Deployment'), 'spec', 'selector', 'matchLabels', 'team'),
      ],
      ['x', undefined],
    ],
    [
      'a label that would change what is selected',
      [[['podLabels'], { 'app.kubernetes.io/name': 'x' }]],
      (all) => at(one(all, 'Deployment'), 'spec', 'template', 'metadata', 'labels', 'app.kubernetes.io/name'),
      'tollgate',
    ],
    [
      'more of a pod',
      [
        [['nodeSelector'], { disk: 'ssd' }],
        [['tolerations'], [{ key: 'a', operator: 'Exists' }]],
        [['priorityClassName'], 'high'],
        [['podAnnotations'], { a: 'b' }],
        [['env'], [{ name: 'OTEL_EXPORTER_OTLP_ENDPOINT', value: 'http://c' }]],
      ],
      (all) => [
        at(podOf(all), 'nodeSelector'),
        at(podOf(all), 'tolerations', 0, 'key'),
        at(podOf(all), 'priorityClassName'),
        at(containerOf(all), 'env', 0, 'value'),
      ],
      [{ disk: 'ssd' }, 'a', 'high', 'http://c'],
    ],
    [
      'more files',
      [
        [['extraVolumes'], [{ name: 'prices', configMap: { name: 'prices' } }]],
        [['extraVolumeMounts'], [{ name: 'prices', mountPath: '/etc/prices' }]],
      ],
      (all) => [items(podOf(all), 'volumes').length, items(containerOf(all), 'volumeMounts').length],
      [5, 5],
    ],
    [
      'other ports to the outside',
      [[['networkPolicy', 'egressPorts'], [8443]]],
      (all) => at(one(all, 'NetworkPolicy'), 'spec', 'egress', 1, 'ports'),
      [{ port: 8443, protocol: 'TCP' }],
    ],
  ])('%s', async (_name, changes, read, expected) => {
    const all = await render(changes);
    expect(shapeFaults(all)).toEqual([]);
    expect(read(all)).toEqual(expected);
  });

  test.each(['prod', 'tollgate-eu', 'a'.repeat(53)])(
    'its objects are named after it: %s',
    async (release) => {
      const all = await render([[['serviceMonitor', 'enabled'], true]], release);
      expect(shapeFaults(all)).toEqual([]);
      const names = all.map((each) => textAt(each, 'metadata', 'name'));
      const own = release.includes('tollgate') ? release : `${release}-tollgate`.slice(0, 57);
      expect(new Set(names)).toEqual(new Set([own, `${own}-admin`]));
      const services = all.filter((each) => at(each, 'kind') === 'Service');
      expect(services.map((each) => at(each, 'spec', 'selector', 'app.kubernetes.io/instance'))).toEqual([
        release,
        release,
      ]);
    },
  );
});
