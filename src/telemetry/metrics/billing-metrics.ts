// Metrics of orders and payments.
import type { MetricCatalogue } from './metric-catalogue.ts';
import { DURATION_BUCKETS } from './traffic-metrics.ts';

const STATES = '`pending`, `paid`, `claimed`, `void`, `refused`';

export function billingMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Billing');
  return {
    events: catalogue.counter({
      name: 'tollgate_billing_events_total',
      meaning: 'Events of the payment provider, by what became of them.',
      labels: { outcome: '`applied`, `known`, `foreign`, `ignored`, `refused`, `busy`, `failed`' },
      action:
        '`failed`: Stripe or the store cannot be reached; Stripe sends again for three days. `refused` and nothing else: the webhook secret is wrong.',
    }),
    transitions: catalogue.counter({
      name: 'tollgate_billing_transitions_total',
      meaning: 'Orders that came to another state or standing, by both.',
      labels: { state: STATES, standing: '`none`, `active`, `past_due`, `held`, `lapsed`, `ended`' },
      action:
        '`refused`: money was taken for what is not offered. See `tollgate orders list --state refused`.',
    }),
    orders: catalogue.gauge({
      name: 'tollgate_billing_orders',
      meaning: 'Orders that cost something, by state, as the process counted them that swept last.',
      labels: { state: STATES },
      action: 'Many `paid` and not `claimed`: buyers do not find the way back. See [billing.md](billing.md).',
    }),
    providerSeconds: catalogue.histogram({
      name: 'tollgate_billing_provider_seconds',
      meaning: 'Calls of the payment provider.',
      labels: {
        call: '`open`, `read`, `end`',
        outcome: '`ok`, `missing`, `refused`, `limited`, `failed`',
      },
      buckets: DURATION_BUCKETS,
      action: '`refused`: the key lacks a right, or a price does not exist. `failed`: Stripe is away.',
    }),
    sweeps: catalogue.counter({
      name: 'tollgate_billing_swept_total',
      meaning: 'Orders that were looked at because of the time.',
      labels: { outcome: '`settled`, `failed`' },
      action: '`failed`: the log says why; each is tried again in ten minutes.',
    }),
  };
}
