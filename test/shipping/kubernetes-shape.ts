// The kinds of Kubernetes that examples/kubernetes and the chart use, strictly: a field that the API server would drop in silence, or
// refuse, is a fault here. Names and kinds of values as in the reference of its API, version 1.33.
import { either, flag, list, map, matching, object, oneOf, port, type Shape, text, whole } from './shapes.ts';

const name = matching(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
const portName = matching(/^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$/);
const labels = map(matching(/^([A-Za-z0-9][\w.-]{0,61})?$/));
const metadata = object({ name }, { labels, annotations: map(text), namespace: name });
const selector = object({ matchLabels: labels });
const quantity = matching(/^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$/);
const quantities = object({}, { cpu: quantity, memory: quantity, 'ephemeral-storage': quantity });
const portOrName = either(port, portName);
const protocol = oneOf('TCP', 'UDP', 'SCTP');

const probe = object(
  { httpGet: object({ path: matching(/^\//), port: portOrName }, { scheme: oneOf('HTTP', 'HTTPS') }) },
  {
    initialDelaySeconds: whole(0),
    periodSeconds: whole(1),
    timeoutSeconds: whole(1),
    failureThreshold: whole(1),
    successThreshold: whole(1),
  },
);

const container = object(
  { name, image: text },
  {
    args: list(text),
    imagePullPolicy: oneOf('Always', 'IfNotPresent', 'Never'),
    env: list(
      object(
        { name: matching(/^[A-Z_][A-Z0-9_]*$/) },
        { value: text, valueFrom: object({ secretKeyRef: object({ name, key: text }, { optional: flag }) }) },
      ),
    ),
    ports: list(object({ containerPort: port }, { name: portName, protocol })),
    startupProbe: probe,
    livenessProbe: probe,
    readinessProbe: probe,
    lifecycle: object({ preStop: object({ sleep: object({ seconds: whole(1) }) }) }),
    resources: object({ requests: quantities }, { limits: quantities }),
    securityContext: object(
      {},
      {
        allowPrivilegeEscalation: flag,
        readOnlyRootFilesystem: flag,
        capabilities: object({}, { drop: list(text), add: list(text) }),
      },
    ),
    volumeMounts: list(object({ name, mountPath: matching(/^\/[^:]*$/) }, { readOnly: flag, subPath: text })),
  },
);

const volume = object(
  { name },
  {
    configMap: object({ name }, { optional: flag, defaultMode: whole(0, 0o777) }),
    secret: object({ secretName: name }, { optional: flag, defaultMode: whole(0, 0o777) }),
    persistentVolumeClaim: object({ claimName: name }, { readOnly: flag }),
    emptyDir: object({}, { sizeLimit: quantity, medium: oneOf('', 'Memory') }),
  },
);

const pod = object(
  { containers: list(container) },
  {
    serviceAccountName: name,
    automountServiceAccountToken: flag,
    enableServiceLinks: flag,
    terminationGracePeriodSeconds: whole(0),
    securityContext: object(
      {},
      {
        runAsNonRoot: flag,
        runAsUser: whole(0),
        runAsGroup: whole(0),
        fsGroup: whole(0),
        seccompProfile: object({ type: oneOf('RuntimeDefault', 'Unconfined', 'Localhost') }),
      },
    ),
    topologySpreadConstraints: list(
      object(
        {
          maxSkew: whole(1),
          topologyKey: text,
          whenUnsatisfiable: oneOf('DoNotSchedule', 'ScheduleAnyway'),
        },
        { labelSelector: selector },
      ),
    ),
    volumes: list(volume),
    imagePullSecrets: list(object({ name })),
    priorityClassName: name,
    nodeSelector: labels,
    tolerations: list(
      object(
        {},
        {
          key: text,
          operator: oneOf('Exists', 'Equal'),
          value: text,
          effect: text,
          tolerationSeconds: whole(0),
        },
      ),
    ),
  },
);

const count = either(whole(0), matching(/^\d+%$/));
const scaling = object(
  {
    policies: list(
      object({ type: oneOf('Pods', 'Percent'), value: whole(1), periodSeconds: whole(1, 1800) }),
    ),
  },
  { stabilizationWindowSeconds: whole(0, 3600), selectPolicy: oneOf('Max', 'Min', 'Disabled') },
);
const peer = object({}, { namespaceSelector: selector, podSelector: selector });
const policyPort = object({ port: portOrName }, { protocol });

const kind = (apiVersion: string, kindName: string, rest: Readonly<Record<string, Shape>>): Shape =>
  object({ apiVersion: oneOf(apiVersion), kind: oneOf(kindName), metadata, ...rest });

/** By `apiVersion kind`. */
export const kinds: Readonly<Record<string, Shape>> = {
  'v1 Namespace': kind('v1', 'Namespace', {}),
  'v1 ServiceAccount': kind('v1', 'ServiceAccount', { automountServiceAccountToken: flag }),
  'v1 ConfigMap': kind('v1', 'ConfigMap', { data: map(text) }),
  'v1 Service': kind('v1', 'Service', {
    spec: object(
      {
        selector: labels,
        ports: list(object({ port }, { name: portName, targetPort: portOrName, protocol })),
      },
      {
        type: oneOf('ClusterIP', 'NodePort', 'LoadBalancer'),
        clusterIP: oneOf('None'),
        publishNotReadyAddresses: flag,
      },
    ),
  }),
  'apps/v1 Deployment': kind('apps/v1', 'Deployment', {
    spec: object(
      { selector, template: object({ metadata: object({ labels }, { annotations: map(text) }), spec: pod }) },
      {
        replicas: whole(0),
        revisionHistoryLimit: whole(0),
        strategy: object(
          { type: oneOf('RollingUpdate', 'Recreate') },
          { rollingUpdate: object({}, { maxUnavailable: count, maxSurge: count }) },
        ),
      },
    ),
  }),
  'policy/v1 PodDisruptionBudget': kind('policy/v1', 'PodDisruptionBudget', {
    spec: object(
      { selector },
      {
        minAvailable: count,
        maxUnavailable: count,
        unhealthyPodEvictionPolicy: oneOf('IfHealthyBudget', 'AlwaysAllow'),
      },
    ),
  }),
  'autoscaling/v2 HorizontalPodAutoscaler': kind('autoscaling/v2', 'HorizontalPodAutoscaler', {
    spec: object(
      {
        scaleTargetRef: object({ apiVersion: text, kind: text, name }),
        minReplicas: whole(1),
        maxReplicas: whole(1),
        metrics: list(
          object({
            type: oneOf('Resource'),
            resource: object({
              name: oneOf('cpu', 'memory'),
              target: object({ type: oneOf('Utilization'), averageUtilization: whole(1, 100) }),
            }),
          }),
        ),
      },
      { behavior: object({}, { scaleUp: scaling, scaleDown: scaling }) },
    ),
  }),
  'networking.k8s.io/v1 NetworkPolicy': kind('networking.k8s.io/v1', 'NetworkPolicy', {
    spec: object(
      { podSelector: selector, policyTypes: list(oneOf('Ingress', 'Egress')) },
      {
        ingress: list(object({}, { from: list(peer), ports: list(policyPort) })),
        egress: list(object({}, { to: list(peer), ports: list(policyPort) })),
      },
    ),
  }),
  'monitoring.coreos.com/v1 ServiceMonitor': kind('monitoring.coreos.com/v1', 'ServiceMonitor', {
    spec: object({
      selector,
      jobLabel: text,
      endpoints: list(
        object(
          { port: portName },
          {
            path: text,
            interval: matching(/^\d+s$/),
            scrapeTimeout: matching(/^\d+s$/),
            scheme: oneOf('http', 'https'),
            tlsConfig: object({}, { serverName: text, insecureSkipVerify: flag }),
          },
        ),
      ),
    }),
  }),
};

/** kustomization.yaml, which is for the command and not for the API server. */
export const kustomization = object({
  apiVersion: oneOf('kustomize.config.k8s.io/v1beta1'),
  kind: oneOf('Kustomization'),
  namespace: name,
  resources: list(matching(/^[\w./-]+\.yaml$/)),
  images: list(object({ name: text }, { newName: text, newTag: text })),
});
