// What must fit together in examples/kubernetes and no schema of a single object can know.
import type { Config } from '../../src/config/schema/config-schema.ts';
import { at, entries, items, numberAt, textAt } from './tree.ts';

/** After drain.timeout, for use that is still to be stored. */
const FLUSH_S = 5;

const isKind = (kind: string) => (object: unknown) => at(object, 'kind') === kind;
const nameOf = (object: unknown): string => textAt(object, 'metadata', 'name');

/** Whether every label of the selector is among the labels. */
function selects(selector: unknown, labels: unknown): boolean {
  const wanted = entries(selector);
  return wanted.length > 0 && wanted.every(([name, value]) => at(labels, name) === value);
}

/** @returns what does not fit, a line each */
export function misfits(
  objects: readonly unknown[],
  config: Config,
  adminPaths: readonly string[],
): string[] {
  const one = (kind: string): unknown => objects.find(isKind(kind));
  const deployment = one('Deployment');
  const podLabels = at(deployment, 'spec', 'template', 'metadata', 'labels');
  const pod = at(deployment, 'spec', 'template', 'spec');
  const container = at(pod, 'containers', 0);
  const ports = items(container, 'ports');
  const portNamed = (name: unknown): unknown => ports.find((each) => at(each, 'name') === name);
  const findings: string[] = [];
  const expect = (holds: boolean, what: string): void => void (holds || findings.push(what));

  // Selectors.
  for (const object of objects.filter((each) =>
    ['Deployment', 'PodDisruptionBudget'].includes(textAt(each, 'kind')),
  )) {
    const selector = at(object, 'spec', 'selector', 'matchLabels');
    expect(selects(selector, podLabels), `${textAt(object, 'kind')} selects no pod`);
  }
  for (const service of objects.filter(isKind('Service'))) {
    expect(selects(at(service, 'spec', 'selector'), podLabels), `Service ${nameOf(service)} selects no pod`);
    for (const each of items(service, 'spec', 'ports')) {
      expect(
        portNamed(at(each, 'targetPort')) !== undefined,
        `Service ${nameOf(service)}: no port ${textAt(each, 'targetPort')}`,
      );
    }
  }
  for (const constraint of items(pod, 'topologySpreadConstraints')) {
    const selector = at(constraint, 'labelSelector', 'matchLabels');
    expect(
      selects(selector, podLabels),
      `the spread over ${textAt(constraint, 'topologyKey')} selects no pod`,
    );
  }
  const policy = one('NetworkPolicy');
  expect(
    selects(at(policy, 'spec', 'podSelector', 'matchLabels'), podLabels),
    'NetworkPolicy selects no pod',
  );
  const entering = items(policy, 'spec', 'ingress').flatMap((rule) =>
    items(rule, 'ports').map((each) => at(each, 'port')),
  );
  for (const each of ports)
    expect(entering.includes(at(each, 'name')), `NetworkPolicy: nobody reaches ${textAt(each, 'name')}`);
  for (const rule of items(policy, 'spec', 'ingress')) {
    for (const each of items(rule, 'ports')) {
      const callers = items(rule, 'from');
      const isOpen = callers.length === 0 || callers.some((from) => entries(from).length === 0);
      expect(!isOpen, `NetworkPolicy: everybody reaches ${textAt(each, 'port')}`);
      // Whom the gateway believes must be the ingress controller, and not whatever else runs in its namespace.
      if (at(each, 'port') === 'http') {
        const isNarrow = callers.every((from) => entries(from, 'podSelector', 'matchLabels').length > 0);
        expect(isNarrow, 'NetworkPolicy: more than the ingress controller reaches http');
      }
    }
  }
  expect(config.static.listen.trusted_proxies.length > 0, 'the ingress controller is not believed');
  const monitor = one('ServiceMonitor');
  const monitored = objects
    .filter(isKind('Service'))
    .filter((service) =>
      selects(at(monitor, 'spec', 'selector', 'matchLabels'), at(service, 'metadata', 'labels')),
    );
  expect(monitored.length === 1, 'ServiceMonitor does not select exactly one Service');
  const jobs = monitored.map((each) => at(each, 'metadata', 'labels', textAt(monitor, 'spec', 'jobLabel')));
  expect(jobs[0] === 'tollgate', 'ServiceMonitor: the job is not that of the alerts');
  for (const endpoint of items(monitor, 'spec', 'endpoints')) {
    const known = monitored.flatMap((service) =>
      items(service, 'spec', 'ports').map((each) => at(each, 'name')),
    );
    expect(known.includes(at(endpoint, 'port')), `ServiceMonitor: no port ${textAt(endpoint, 'port')}`);
    expect(
      adminPaths.includes(textAt(endpoint, 'path')),
      `ServiceMonitor: no page ${textAt(endpoint, 'path')}`,
    );
  }

  // Listeners and probes.
  expect(at(portNamed('http'), 'containerPort') === config.static.listen.port, 'http is not listen.port');
  expect(at(portNamed('admin'), 'containerPort') === config.static.admin.port, 'admin is not admin.port');
  for (const [listener, { host }] of Object.entries({
    listen: config.static.listen,
    admin: config.static.admin,
  })) {
    expect(host === '0.0.0.0' || host === '::', `${listener}.host is not reachable from outside the pod`);
  }
  for (const name of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    const path = textAt(container, name, 'httpGet', 'path');
    expect(at(container, name, 'httpGet', 'port') === 'admin', `${name} does not ask the admin listener`);
    expect(adminPaths.includes(path), `${name}: no page ${path}`);
    expect((path === '/livez') === (name === 'livenessProbe'), `${name} asks ${path}`);
  }

  // The end of a pod.
  const grace = numberAt(pod, 'terminationGracePeriodSeconds');
  const { delay, timeout } = config.dynamic.drain;
  const preStop = numberAt(container, 'lifecycle', 'preStop', 'sleep', 'seconds');
  expect(grace > preStop + delay / 1000 + timeout / 1000 + FLUSH_S, 'the grace period ends before the drain');
  expect(preStop > 0 || delay > 0, 'nothing waits until endpoints have forgotten the pod');

  // Folders, secrets, accounts.
  const volumes = new Map(items(pod, 'volumes').map((volume) => [textAt(volume, 'name'), volume]));
  for (const mount of items(container, 'volumeMounts')) {
    const volume = volumes.get(textAt(mount, 'name'));
    expect(volume !== undefined, `no volume ${textAt(mount, 'name')}`);
    expect(
      at(mount, 'subPath') === undefined,
      `${textAt(mount, 'mountPath')} is a single file, which is never updated`,
    );
    const map = at(volume, 'configMap', 'name');
    const isThere =
      map === undefined || objects.some((each) => isKind('ConfigMap')(each) && nameOf(each) === map);
    expect(isThere, `no ConfigMap ${String(map)}`);
  }
  const mounts = items(container, 'volumeMounts').map((mount) => `${textAt(mount, 'mountPath')}/`);
  const file = textAt(items(container, 'args').at(-1));
  const configFolder = mounts.find((mount) => file.startsWith(mount));
  const inMap =
    configFolder !== undefined && at(one('ConfigMap'), 'data', file.slice(configFolder.length)) !== undefined;
  expect(inMap, `${file} is in no ConfigMap`);
  const spool = config.static.usage?.spool ?? './data/usage';
  expect(
    mounts.some((mount) => spool.startsWith(mount)),
    `${spool} is on no volume`,
  );
  expect(
    objects.some((each) => isKind('ServiceAccount')(each) && nameOf(each) === at(pod, 'serviceAccountName')),
    'no such ServiceAccount',
  );

  // What the restricted policy of the namespace asks for, and more.
  expect(at(pod, 'securityContext', 'runAsNonRoot') === true, 'may run as root');
  expect(numberAt(pod, 'securityContext', 'runAsUser') > 0, 'runs as root');
  expect(at(pod, 'securityContext', 'seccompProfile', 'type') === 'RuntimeDefault', 'no seccomp profile');
  expect(at(container, 'securityContext', 'allowPrivilegeEscalation') === false, 'may gain privileges');
  expect(
    at(container, 'securityContext', 'readOnlyRootFilesystem') === true,
    'may write to its root file system',
  );
  expect(items(container, 'securityContext', 'capabilities', 'drop').includes('ALL'), 'keeps capabilities');
  expect(at(pod, 'automountServiceAccountToken') === false, 'is given a token');
  expect(at(container, 'resources', 'limits', 'memory') !== undefined, 'no limit on memory');

  // Number of replicas.
  const scaler = one('HorizontalPodAutoscaler');
  const isItsTarget =
    at(scaler, 'spec', 'scaleTargetRef', 'kind') === 'Deployment' &&
    at(scaler, 'spec', 'scaleTargetRef', 'name') === nameOf(deployment);
  expect(isItsTarget, 'HorizontalPodAutoscaler has no target');
  expect(at(deployment, 'spec', 'replicas') === undefined, 'two say how many replicas there are');
  expect(numberAt(scaler, 'spec', 'minReplicas') >= 2, 'fewer than two replicas');
  expect(
    numberAt(scaler, 'spec', 'maxReplicas') >= numberAt(scaler, 'spec', 'minReplicas'),
    'more at least than at most',
  );
  expect(at(container, 'resources', 'requests', 'cpu') !== undefined, 'no request of CPU to measure use by');
  return findings;
}
