// What a listener offers over WebSockets, and beside them: realtime sessions, their client secrets, and responses.
import type { Server } from '../http/server.ts';
import type { Pipeline } from '../proxy/pipeline.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { ClientSecrets } from './client-secret.ts';
import { clientSecretsEndpoint, refuseCalls } from './client-secrets-endpoint.ts';
import { Realtime, type RealtimeOptions } from './realtime-endpoint.ts';
import { ResponsesSockets, type ResponsesSocketsOptions } from './responses/responses-endpoint.ts';

interface SessionsOptions extends Omit<RealtimeOptions, 'secrets'> {
  readonly metrics: Metrics;
  readonly pipeline: Pipeline;
  readonly overload: ResponsesSocketsOptions['overload'];
  readonly server: Server;
  readonly sealingKey: Buffer;
}

/** @returns a function that registers the routes */
export function openSessions(options: SessionsOptions): () => void {
  const { authenticator, snapshot, metrics, overload, server, sealingKey } = options;
  const secrets = new ClientSecrets({ authenticator, sealingKey });
  const realtime = new Realtime({ ...options, secrets });
  const responses = new ResponsesSockets(options);
  return () => {
    const secretsPath = '/v1/realtime/client_secrets';
    metrics.addRoute(secretsPath);
    const endpoint = clientSecretsEndpoint({ authenticator, snapshot, secrets });
    server.route('POST', secretsPath, overload.guard(endpoint));
    server.mount('/v1/realtime/calls', refuseCalls);
    server.routeUpgrade(
      '/v1/realtime',
      overload.guard((exchange) => realtime.answer(exchange)),
    );
    server.routeUpgrade(
      '/v1/responses',
      overload.guard((exchange) => responses.answer(exchange)),
    );
  };
}
