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
      action:
        '`failed`: Stripe or the store is unavailable; Stripe retries for three days. Only `refused`: the webhook secret is wrong.',
    }),
    transitions: catalogue.counter('tollgate_billing_transitions_total', {
      meaning: 'Changes of the state or standing of orders.',
      labels: { state: STATES, standing: '`none`, `active`, `past_due`, `held`, `lapsed`, `ended`' },
      action:
        '`refused`: a buyer paid for something that is not offered. See `tollgate orders list --state refused`.',
    }),
    orders: catalogue.gauge('tollgate_billing_orders', {
      meaning: 'Paid orders by state, at the last sweep.',
      labels: { state: STATES },
      action: 'Many `paid`, few `claimed`: buyers do not return for their key. See [billing.md](billing.md).',
    }),
    providerSeconds: catalogue.histogram('tollgate_billing_provider_seconds', {
      meaning: 'Duration of calls to the payment provider.',
      labels: {
        call: '`open`, `read`, `end`, `portal`, `cancel`, `refund`',
        outcome: '`ok`, `missing`, `refused`, `limited`, `failed`',
      },
      buckets: DURATION_BUCKETS,
      action:
        '`refused`: the key lacks a permission, or a price does not exist. `failed`: Stripe is unavailable.',
    }),
    sweeps: catalogue.counter('tollgate_billing_swept_total', {
      meaning: 'Orders that the periodic sweep has reconciled.',
      labels: { outcome: '`settled`, `failed`' },
      action: '`failed`: the log has the cause; each is retried after ten minutes.',
    }),
  };
}
