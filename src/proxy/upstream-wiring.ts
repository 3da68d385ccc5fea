// Wires the upstreams of one process: the configuration in force, breakers and averages, drains by hand, and the reports of their state.
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { Repeat } from '../repeat.ts';
import type { UpstreamStore } from '../store/upstream-record.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import { Drains } from '../upstream/state/drains.ts';
import { StateLog } from '../upstream/state/state-log.ts';
import { Routing } from './routes/routing.ts';
import { Resilience, type ResilienceOptions } from './targets/resilience.ts';
import { upstreamStates } from './targets/upstream-states.ts';

/** Within this time the end of a cool-down is reported, in milliseconds. */
const OBSERVE_MS = 1000;

interface UpstreamsOptions extends Pick<ResilienceOptions, 'now' | 'random'> {
  readonly config: DynamicConfig;
  /** Version of Tollgate, for the requests. */
  readonly version: string;
  readonly store: UpstreamStore;
  readonly metrics: Metrics;
  readonly logger: Logger;
  /** Takes each resource as soon as it is open. */
  readonly onOpen: (name: string, close: () => Promise<void>) => void;
}

/** @throws (rejects with) GatewayError `store_unavailable` when the drains cannot be read */
export async function openUpstreams(options: UpstreamsOptions) {
  const { config, version, store, metrics, logger, onOpen, now, random } = options;
  const changes = new StateLog({ store, logger });
  onOpen('state log', () => changes.close());
  const drains = new Drains({ store, logger });
  await drains.start();
  onOpen('drains', () => drains.stop());
  const routing = new Routing({
    config,
    userAgent: `tollgate/${version}`,
    metrics,
    onRemoved: (upstream) => resilience.retire(upstream),
    onState: (upstream, what, reason) => changes.report({ upstream, what, reason }),
    drains,
    logger,
  });
  onOpen('upstreams', () => routing.close());
  const snapshot = () => routing.snapshot;
  const resilience = new Resilience({
    share: () => snapshot().config.retry.budget,
    now,
    random,
    onChange: ({ to, ...change }) =>
      changes.report({
        ...change,
        what: to === 'cooling_down' || to === 'cooled_down' ? to : `breaker ${to}`,
      }),
  });
  const observation = new Repeat(async () => {
    resilience.observe();
    return OBSERVE_MS;
  });
  observation.start(OBSERVE_MS);
  onOpen('cool-downs', () => observation.stop());
  const states = () => upstreamStates(snapshot().config, routing.upstreams, resilience);
  metrics.upstreamStates.read = states;
  return { routing, snapshot, resilience, drains, states };
}
