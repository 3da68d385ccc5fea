// Metrics of orders and payments.
import type { MetricCatalogue } from './metric-catalogue.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

const STATES = '`pending`, `paid`, `claimed`, `void`, `refused`';

export function billingMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Billing');
  return {
    events: catalogue.counter('tollgate_billing_events_total', {
      meaning: 'Webhook events of the payment provider, by outcome.',
      labels: { outcome: '`applied`, `known`, `foreign`, `ignored`, `refused`, `busy`, `failed`' },
    }),
    transitions: catalogue.counter('tollgate_billing_transitions_total', {
      meaning: 'Changes of the state or standing of orders.',
      labels: { state: STATES, standing: '`none`, `active`, `past_due`, `held`, `lapsed`, `ended`' },
    }),
    orders: catalogue.gauge('tollgate_billing_orders', {
      meaning: 'Paid orders by state, at the last sweep.',
      labels: { state: STATES },
    }),
    providerSeconds: catalogue.histogram('tollgate_billing_provider_seconds', {
      meaning: 'Duration of calls to the payment provider.',
      labels: {
        call: '`open`, `read`, `end`, `portal`, `cancel`, `refund`',
        outcome: '`ok`, `missing`, `refused`, `limited`, `failed`',
      },
      buckets: DURATION_BUCKETS,
    }),
    sweeps: catalogue.counter('tollgate_billing_swept_total', {
      meaning: 'Orders that the periodic sweep has reconciled.',
      labels: { outcome: '`settled`, `failed`' },
    }),
  };
}
