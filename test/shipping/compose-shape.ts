// The part of the Compose Specification that examples/compose.yaml uses, strictly.
import { either, flag, list, map, matching, object, oneOf, type Shape, text, whole } from './shapes.ts';

const duration = matching(/^(\d+(us|ms|s|m|h))+$/);
const bytes = matching(/^\d+(\.\d+)?(b|k|kb|m|mb|g|gb|K|M|G)$/);
const cpus = matching(/^\d+(\.\d+)?$/);
const command = list(text);
/** Environment and labels: YAML's own true and 5432 would reach the container as somebody's idea of text. */
const texts = map({ type: 'string' });

const service = object(
  { image: matching(/^[a-z0-9./_-]+:[\w.-]+(@sha256:[0-9a-f]{64})?$/) },
  {
    build: object({ context: text, dockerfile: text }),
    command,
    user: text,
    init: flag,
    restart: oneOf('no', 'always', 'on-failure', 'unless-stopped'),
    read_only: flag,
    cap_drop: list(text),
    cap_add: list(text),
    security_opt: list(text),
    environment: texts,
    ports: list(matching(/^((\d+\.){3}\d+:)?\d+(-\d+)?:\d+$/)),
    networks: list(text),
    volumes: list(matching(/^[\w./-]+:\/[\w./-]+(:ro)?$/)),
    tmpfs: list(matching(/^\//)),
    shm_size: bytes,
    depends_on: map(object({ condition: oneOf('service_started', 'service_healthy') })),
    healthcheck: object(
      { test: command },
      {
        interval: duration,
        timeout: duration,
        retries: whole(1),
        start_period: duration,
        start_interval: duration,
      },
    ),
    stop_grace_period: duration,
    logging: object({ driver: text }, { options: texts }),
    deploy: object(
      {},
      {
        resources: object(
          {},
          {
            limits: object({}, { cpus, memory: bytes, pids: whole(1) }),
            reservations: object({}, { cpus, memory: bytes }),
          },
        ),
      },
    ),
  },
);

/** Services, networks and volumes; what begins with `x-` is for anchors. */
export const composeFile: Shape = {
  type: 'object',
  properties: {
    name: matching(/^[a-z0-9][a-z0-9_-]*$/),
    services: map(service, '^[a-z0-9-]+$'),
    networks: map(object({}, { internal: flag })),
    volumes: map(object({})),
  },
  patternProperties: { '^x-': {} },
  required: ['services'],
  additionalProperties: false,
};

/** Of Grafana's provisioning. */
export const datasources = object({
  apiVersion: oneOf(1),
  datasources: list(
    object(
      { name: text, type: text, url: text },
      {
        uid: text,
        access: oneOf('proxy', 'direct'),
        isDefault: flag,
        editable: flag,
        jsonData: object({}, { httpMethod: oneOf('POST', 'GET'), timeInterval: duration }),
      },
    ),
  ),
});

export const dashboards = object({
  apiVersion: oneOf(1),
  providers: list(
    object(
      { name: text, type: oneOf('file'), options: object({ path: text }) },
      { disableDeletion: flag, allowUiUpdates: flag, folder: either(text, oneOf('')) },
    ),
  ),
});
