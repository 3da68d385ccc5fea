// Metrics of realtime sessions.
import type { MetricCatalogue } from './metric-catalogue.ts';

export function realtimeMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Realtime');
  return {
    realtimeSessions: catalogue.gauge({
      name: 'tollgate_realtime_sessions',
      meaning: 'Realtime sessions that are open.',
      labels: {},
      action: 'None is needed. Each holds two connections.',
    }),
    realtimeEnds: catalogue.counter({
      name: 'tollgate_realtime_sessions_ended_total',
      meaning:
        'Realtime sessions that ended, by who said Close first (or broke off) and its code; codes of applications are `other`.',
      labels: { by: '`client`, `upstream`, `gateway`', code: 'a close code of RFC 6455, or `other`' },
      action: 'Many with 1006: connections are cut between the client, the gateway and the upstream.',
    }),
    realtimeResponses: catalogue.counter({
      name: 'tollgate_realtime_responses_total',
      meaning:
        'Answers in realtime sessions whose tokens were counted: reported by the upstream, or estimated.',
      labels: { counted: '`reported`, `estimated`' },
      action: 'Estimated ones: the upstream does not say what it used, or sessions break off.',
    }),
  };
}
