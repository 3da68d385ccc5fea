// examples/kubernetes by strict schemas and by what must fit together, because no cluster is at hand to ask; every rule is
// also shown to fail.
import { readdirSync, readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import type { Config } from '../../src/config/schema/config-schema.ts';
import { checkedConfig, variablesOf } from './checked-config.ts';
import { misfits } from './kubernetes-rules.ts';
import { kinds, kustomization } from './kubernetes-shape.ts';
import { faultsOf, type Shape } from './shapes.ts';
import { at, changed, items, textAt } from './tree.ts';

const FOLDER = new URL('../../examples/kubernetes/', import.meta.url);
const ADMIN = readFileSync(new URL('../../src/http/admin/admin-listener.ts', import.meta.url), 'utf8');
const read = (file: string): string => readFileSync(new URL(file, FOLDER), 'utf8');

const files = readdirSync(FOLDER).filter((file) => file !== 'kustomization.yaml');
const objects: readonly unknown[] = files.flatMap((file) =>
  parseAllDocuments(read(file)).map((document): unknown => document.toJS()),
);
const kindOf = (object: unknown): string => `${textAt(object, 'apiVersion')} ${textAt(object, 'kind')}`;
const shapeOf = (object: unknown): Shape => kinds[kindOf(object)] ?? {};
const indexOf = (kind: string): number => objects.findIndex((object) => at(object, 'kind') === kind);
const deployment = objects[indexOf('Deployment')];
const CONTAINER = ['spec', 'template', 'spec', 'containers', 0] as const;

/** Pages that the admin listener has by its source. */
const adminPaths = Array.from(ADMIN.matchAll(/^ +'(\/[a-z]+)': async/gm), ([, path = '']) => path);

let config: Config;
const secrets = items(deployment, ...CONTAINER, 'env').map((each) => textAt(each, 'name'));
const configText = textAt(objects[indexOf('ConfigMap')], 'data', 'config.yaml');
beforeAll(async () => {
  config = await checkedConfig(configText, secrets);
});

describe('each object', () => {
  test.each(
    objects.map((object) => [`${textAt(object, 'kind')} ${textAt(object, 'metadata', 'name')}`, object]),
  )('%s is of a known kind and has only fields of it', (_name, object) => {
    expect(Object.keys(kinds)).toContain(kindOf(object));
    expect(faultsOf(shapeOf(object), object)).toEqual([]);
  });

  test('all the kinds that a deployment needs are there, once each', () => {
    const names = objects.map((object) => `${textAt(object, 'kind')} ${textAt(object, 'metadata', 'name')}`);
    expect(new Set(names).size).toBe(names.length);
    for (const kind of [
      'Deployment',
      'ConfigMap',
      'Service',
      'PodDisruptionBudget',
      'HorizontalPodAutoscaler',
      'NetworkPolicy',
    ]) {
      expect(indexOf(kind), kind).not.toBe(-1);
    }
  });

  test.each<[string, readonly (string | number)[], unknown]>([
    ['a field at the wrong level', [...CONTAINER, 'terminationGracePeriodSeconds'], 30],
    ['a mistyped field', [...CONTAINER, 'readynessProbe'], {}],
    ['a number as text', [...CONTAINER, 'ports', 0, 'containerPort'], '8080'],
    ['a port that there is not', [...CONTAINER, 'ports', 0, 'containerPort'], 80_800],
    ['an environment value that is no text', [...CONTAINER, 'env', 0, 'value'], 1],
    ['a quantity that is none', [...CONTAINER, 'resources', 'limits', 'memory'], '1GB'],
    ['a selector that is missing', ['spec', 'selector'], undefined],
    ['a choice that there is not', ['spec', 'strategy', 'type'], 'Rolling'],
  ])('the schema refuses %s', (_name, path, to) => {
    expect(faultsOf(shapeOf(deployment), changed(deployment, path, to))).not.toEqual([]);
  });
});

describe('together', () => {
  test('the pages of the admin listener are known', () => {
    expect(adminPaths).toEqual(expect.arrayContaining(['/metrics', '/livez', '/readyz']));
  });

  test('they fit', () => {
    expect(misfits(objects, config, adminPaths)).toEqual([]);
  });

  test('the configuration is good, without a warning, and takes exactly the secrets that the pod is given', () => {
    expect(config.warnings).toEqual([]);
    expect(variablesOf(configText)).toEqual(secrets.toSorted());
    for (const each of items(deployment, ...CONTAINER, 'env')) {
      expect(at(each, 'value'), textAt(each, 'name')).toBeUndefined();
      expect(at(each, 'valueFrom', 'secretKeyRef', 'key')).toBe(textAt(each, 'name'));
    }
  });

  test('kustomization.yaml applies every file, and says how the secret is made', () => {
    const text = read('kustomization.yaml');
    const file: unknown = parse(text);
    expect(faultsOf(kustomization, file)).toEqual([]);
    const optional = 'servicemonitor.yaml';
    expect(items(file, 'resources').toSorted()).toEqual(files.filter((name) => name !== optional).sort());
    expect(text).toContain(`# - ${optional}`);
    expect(at(file, 'images', 0, 'name')).toBe(at(deployment, ...CONTAINER, 'image'));
    expect(at(file, 'namespace')).toBe(textAt(objects[indexOf('Namespace')], 'metadata', 'name'));
    for (const name of secrets) expect(text).toContain(`--from-literal=${name}=`);
  });

  test.each<[string, string, readonly (string | number)[], unknown]>([
    ['Deployment selects no pod', 'Deployment', ['spec', 'template', 'metadata', 'labels'], { app: 'x' }],
    [
      'PodDisruptionBudget selects no pod',
      'PodDisruptionBudget',
      ['spec', 'selector', 'matchLabels'],
      { app: 'x' },
    ],
    ['Service tollgate selects no pod', 'Service', ['spec', 'selector'], { app: 'x' }],
    ['Service tollgate: no port web', 'Service', ['spec', 'ports', 0, 'targetPort'], 'web'],
    ['NetworkPolicy: everybody reaches http', 'NetworkPolicy', ['spec', 'ingress', 0, 'from'], undefined],
    ['NetworkPolicy: everybody reaches admin', 'NetworkPolicy', ['spec', 'ingress', 1, 'from'], [{}]],
    [
      'NetworkPolicy: more than the ingress controller reaches http',
      'NetworkPolicy',
      ['spec', 'ingress', 0, 'from', 0, 'podSelector'],
      undefined,
    ],
    ['NetworkPolicy: nobody reaches admin', 'NetworkPolicy', ['spec', 'ingress', 1], {}],
    [
      'ServiceMonitor does not select exactly one Service',
      'ServiceMonitor',
      ['spec', 'selector', 'matchLabels'],
      { 'app.kubernetes.io/name': 'tollgate' },
    ],
    [
      'ServiceMonitor: the job is not that of the alerts',
      'ServiceMonitor',
      ['spec', 'jobLabel'],
      'app.kubernetes.io/component',
    ],
    ['ServiceMonitor: no page /metric', 'ServiceMonitor', ['spec', 'endpoints', 0, 'path'], '/metric'],
    ['http is not listen.port', 'Deployment', [...CONTAINER, 'ports', 0, 'containerPort'], 8081],
    [
      'livenessProbe: no page /healthz',
      'Deployment',
      [...CONTAINER, 'livenessProbe', 'httpGet', 'path'],
      '/healthz',
    ],
    [
      'livenessProbe asks /readyz',
      'Deployment',
      [...CONTAINER, 'livenessProbe', 'httpGet', 'path'],
      '/readyz',
    ],
    [
      'readinessProbe does not ask the admin listener',
      'Deployment',
      [...CONTAINER, 'readinessProbe', 'httpGet', 'port'],
      'http',
    ],
    [
      'the grace period ends before the drain',
      'Deployment',
      ['spec', 'template', 'spec', 'terminationGracePeriodSeconds'],
      75,
    ],
    [
      '/etc/tollgate is a single file, which is never updated',
      'Deployment',
      [...CONTAINER, 'volumeMounts', 0, 'subPath'],
      'config.yaml',
    ],
    [
      'no ConfigMap other',
      'Deployment',
      ['spec', 'template', 'spec', 'volumes', 0, 'configMap', 'name'],
      'other',
    ],
    [
      '/etc/tollgate/x.yaml is in no ConfigMap',
      'Deployment',
      [...CONTAINER, 'args', 2],
      '/etc/tollgate/x.yaml',
    ],
    [
      '/app/data/usage is on no volume',
      'Deployment',
      [...CONTAINER, 'volumeMounts', 1, 'mountPath'],
      '/data',
    ],
    [
      'may write to its root file system',
      'Deployment',
      [...CONTAINER, 'securityContext', 'readOnlyRootFilesystem'],
      false,
    ],
    ['two say how many replicas there are', 'Deployment', ['spec', 'replicas'], 2],
    ['fewer than two replicas', 'HorizontalPodAutoscaler', ['spec', 'minReplicas'], 1],
  ])('is noticed: %s', (finding, kind, path, to) => {
    const others = objects.with(indexOf(kind), changed(objects[indexOf(kind)], path, to));
    expect(misfits(others, config, adminPaths)).toContain(finding);
  });
});
