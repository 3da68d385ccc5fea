// Metrics of keys: checks, caches, Argon2, changes and how long they take to be known.
import type { MetricCatalogue } from './metric-catalogue.ts';

/** Seconds: of a computation on a thread, which usually takes some tens of milliseconds. */
const ARGON2_BUCKETS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2] as const;

export function keyMetrics(catalogue: MetricCatalogue) {
  catalogue.area('Keys');
  return {
    authOutcomes: catalogue.counter({
      name: 'tollgate_auth_total',
      meaning:
        'Key checks by outcome: cached, verified, suspended, refused, refused_cached, limited, unavailable.',
      labels: {
        outcome: '`cached`, `verified`, `suspended`, `refused`, `refused_cached`, `limited`, `unavailable`',
      },
      action: '`refused` and `limited` high: somebody guesses keys, or a program has an old one.',
    }),
    authUnavailable: catalogue.counter({
      name: 'tollgate_auth_unavailable_total',
      meaning:
        'Keys that could not be checked (503), by reason: store, late, queue, hashing, contradiction, changing, other.',
      labels: { reason: '`store`, `late`, `queue`, `hashing`, `contradiction`, `changing`, `other`' },
      action:
        '`store`, `late`: the store. `queue`, `hashing`: more keys at once than can be checked, add processors.',
    }),
    authCacheEntries: catalogue.gauge({
      name: 'tollgate_auth_cache_entries',
      meaning: 'Entries in the bounded caches of key checking: positive, negative, failures.',
      labels: { cache: '`positive`, `negative`, `failures`' },
      action: 'At its bound entries are displaced and keys checked anew: correct, and slower.',
    }),
    argon2Runs: catalogue.counter({
      name: 'tollgate_argon2_runs_total',
      meaning: 'Argon2id computations, by purpose: hash or verify.',
      labels: { purpose: '`hash`, `verify`' },
      action: 'Many `verify` for few keys: caches do not hold; see `tollgate_key_cache_lookups_total`.',
    }),
    argon2Seconds: catalogue.histogram({
      name: 'tollgate_argon2_duration_seconds',
      meaning: 'How long one Argon2id computation takes, without its wait for a place.',
      labels: { purpose: '`hash`, `verify`' },
      buckets: ARGON2_BUCKETS,
      action: 'High: processors are short, or the threads of libuv hang in name resolution or files.',
    }),
    argon2Queue: catalogue.gauge({
      name: 'tollgate_argon2_queue',
      meaning: 'Argon2id computations waiting for a place.',
      labels: {},
      action:
        'Stays above 0: more new keys arrive than can be checked; requests with keys that are known do not wait.',
    }),
    keyChanges: catalogue.counter({
      name: 'tollgate_key_changes_total',
      meaning: 'Changes of keys that this process took over from the store.',
      labels: { kind: '`issued`, `rotated`, `revoked`, `changed`' },
      action: 'None is needed.',
    }),
    keyLag: catalogue.histogram({
      name: 'tollgate_key_propagation_seconds',
      meaning: 'From a change of a key by another process until this one heard of it, by message or poll.',
      labels: { via: '`message`, `poll`' },
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
      action: 'Above a second: messages through Redis do not arrive; clocks that differ show here, too.',
    }),
    sharedRecords: catalogue.counter({
      name: 'tollgate_key_cache_lookups_total',
      meaning: 'Look-ups of key records in Redis: hit, miss, ended, changed, damaged, unavailable.',
      labels: { result: '`hit`, `miss`, `ended`, `changed`, `damaged`, `unavailable`' },
      action: '`damaged`: somebody else writes there, or replicas have different secrets.',
    }),
    keyPollFailures: catalogue.counter({
      name: 'tollgate_key_poll_failures_total',
      meaning: 'Polls for changed keys that the store did not answer.',
      labels: {},
      action: 'Goes on rising: the store is away. After 60 s keys can no longer be checked.',
    }),
    storeWritable: catalogue.gauge({
      name: 'tollgate_store_writable',
      meaning: 'Whether the store can be written: 1 or 0.',
      labels: {},
      across: 'min',
      action:
        '0: no key can be made, rotated or revoked, and use waits in the outbox. The log says why: a full disk, a lock, a standby.',
    }),
  };
}
