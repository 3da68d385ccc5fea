// Metrics of keys: checks, caches, Argon2id, and the propagation of changes.
import type { MetricCatalogue } from './metric-catalogue.ts';

/** In seconds. A computation usually takes some tens of milliseconds. */
const ARGON2_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2] as const;

export function keyMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Keys');
  return {
    authOutcomes: catalogue.counter('tollgate_auth_total', {
      meaning: 'Key checks by outcome.',
      labels: {
        outcome:
          '`cached`, `verified`, `suspended`, `expired`, `refused`, `refused_cached`, `limited`, `unavailable`',
      },
    }),
    authUnavailable: catalogue.counter('tollgate_auth_unavailable_total', {
      meaning: 'Keys that could not be checked (503), by reason.',
      labels: { reason: '`store`, `late`, `queue`, `hashing`, `contradiction`, `changing`, `other`' },
    }),
    authCacheEntries: catalogue.gauge('tollgate_auth_cache_entries', {
      meaning: 'Entries in the bounded caches of key checks.',
      labels: { cache: '`positive`, `negative`, `failures`' },
    }),
    argon2Runs: catalogue.counter('tollgate_argon2_runs_total', {
      meaning: 'Argon2id computations, by purpose.',
      labels: { purpose: '`hash`, `verify`' },
    }),
    argon2Seconds: catalogue.histogram('tollgate_argon2_duration_seconds', {
      meaning: 'Duration of an Argon2id computation, without its wait for a slot.',
      labels: { purpose: '`hash`, `verify`' },
      buckets: ARGON2_BUCKETS,
    }),
    argon2Queue: catalogue.gauge('tollgate_argon2_queue', {
      meaning: 'Argon2id computations that wait for a slot.',
    }),
    keyChanges: catalogue.counter('tollgate_key_changes_total', {
      meaning: 'Changes of keys that this process has read from the store.',
      labels: { kind: '`issued`, `rotated`, `revoked`, `changed`' },
    }),
    keyLag: catalogue.histogram('tollgate_key_propagation_seconds', {
      meaning: 'Delay between a change of a key by another process and its arrival here.',
      labels: { via: '`message`, `poll`' },
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
    }),
    sharedRecords: catalogue.counter('tollgate_key_cache_lookups_total', {
      meaning: 'Lookups of key records in Redis, by result.',
      labels: { result: '`hit`, `miss`, `ended`, `changed`, `damaged`, `unavailable`' },
    }),
    expiringKeys: catalogue.gauge('tollgate_expiring_keys', {
      meaning: 'Active keys that expire within 7 days, counted every 10 minutes.',
      across: 'max',
    }),
    keyPollFailures: catalogue.counter('tollgate_key_poll_failures_total', {
      meaning: 'Failed polls of the store for changed keys.',
    }),
    storeWritable: catalogue.gauge('tollgate_store_writable', {
      meaning: 'Whether the store is writable: 1 or 0.',
      across: 'min',
    }),
  };
}
