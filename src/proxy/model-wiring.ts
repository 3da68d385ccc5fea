// What a listener offers of models: their endpoints, stored responses, and the list. realtime-wiring.ts adds WebSockets.
import { SpoolFiles } from '../http/body/upload-spool.ts';
import { BufferPool } from '../http/pieces/buffer-pool.ts';
import { type Handler, type Method, MODEL_PATH } from '../http/router.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import { UsageReads } from '../upstream/usage-reads.ts';
import { BackgroundUsage } from './background-usage.ts';
import { MODEL_ENDPOINTS } from './endpoints/form-endpoints.ts';
import { ModelsEndpoint } from './models-endpoint.ts';
import { ObjectOwners } from './objects/object-owners.ts';
import { StoredResponses } from './objects/stored-responses.ts';
import { Pipeline, type PipelineOptions } from './pipeline.ts';
import type { Metering } from './reservation/metering.ts';
import { STORED_ROUTES, StoredResponseCalls } from './stored-response-calls.ts';

/** Maximum uploads in temporary files at once; with `max_body` it bounds their disk space. */
const MAX_SPOOLED_UPLOADS = 32;

type Shared = 'authenticator' | 'snapshot' | 'metrics' | 'resilience';

interface ModelsOptions extends Pick<PipelineOptions, Shared>, Pick<Metering, 'metering' | 'limiter'> {
  readonly store: Pick<Store, 'responses' | 'objects'>;
  readonly logger: Logger;
}

/** Opens the handlers. `mount` registers their routes. */
export function openModels({ store, logger, limiter, ...common }: ModelsOptions) {
  const { snapshot, metrics, metering } = common;
  const room = new SpoolFiles({
    limit: MAX_SPOOLED_UPLOADS,
    gauges: { files: metrics.uploadFiles, bytes: metrics.uploadFileBytes },
    onError: (cause) => logger.warn({ err: cause }, 'failed to keep an upload in a temporary file'),
  });
  const stored = new StoredResponses({ store: store.responses, logger });
  const objects = new ObjectOwners({ store: store.objects, logger });
  const buffers = new BufferPool({ gauge: metrics.slabBytes });
  const usageReads = new UsageReads({ metrics: metrics.usageReads });
  const background = new BackgroundUsage({ stored, metering: { ...metering, limiter }, snapshot, metrics });
  const relaying = { ...common, stored, background, objects, room, buffers, usageReads };
  const pipeline = new Pipeline(relaying);
  const calls = new StoredResponseCalls(relaying);
  const models = new ModelsEndpoint(common);
  return {
    pipeline,
    objects,
    usageReads,
    close: () => background.close(),
    mount(route: (method: Method, path: string, handler: Handler) => void): void {
      for (const endpoint of MODEL_ENDPOINTS) {
        for (const path of endpoint.routes ?? [`/v1/${endpoint.path}`])
          route('POST', path, (exchange) => pipeline.answer(exchange, endpoint));
      }
      for (const { method, path, action } of STORED_ROUTES) {
        route(method, path, (exchange) => calls.answer(exchange, action));
      }
      route('GET', '/v1/models', (exchange) => models.list(exchange));
      route('GET', `${MODEL_PATH}:id`, (exchange) => models.retrieve(exchange));
    },
  };
}
