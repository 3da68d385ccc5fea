// The messages between the primary and its workers. The protocol needs no version: the primary forks workers from the same code,
// and the IPC channel is private.
import type { Registry } from 'prom-client';
import type { FileContents } from '../config/source/referenced-files.ts';
import type { HealthReport } from '../http/admin/health.ts';
import type { UpstreamState } from '../upstream/state/upstream-state.ts';

/** Metrics of one process, in prom-client's JSON form. */
export type Samples = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

/** What the admin listener shows of a worker. */
export interface WorkerReport {
  readonly samples: Samples;
  readonly upstreams: readonly UpstreamState[];
}

/** The data that a worker starts with. */
export interface WorkerStart {
  readonly kind: 'begin';
  readonly file: string;
  /** Content of the file when the primary started: source of the fields that need a restart. */
  readonly first: Buffer;
  /** Values of the files that `first` refers to, when the primary started. */
  readonly firstFiles: FileContents;
  /** Content in force now: source of all other fields. */
  readonly bytes: Buffer;
  /** Values in force of the files that `bytes` refers to. */
  readonly files: FileContents;
  /** The file has changed since, and its present content is invalid. */
  readonly isRejected: boolean;
  /** Port of the public listener. With 0, all running workers share one free port. */
  readonly port: number;
  /** Number of workers. */
  readonly count: number;
}

export type ToWorker =
  | WorkerStart
  /** A valid configuration; the worker must end up with the same hash. */
  | {
      readonly kind: 'config';
      readonly bytes: Buffer;
      readonly files: FileContents;
      readonly hash: string;
    }
  | { readonly kind: 'rejected' }
  | { readonly kind: 'report' }
  /** Close connections behind the next responses, all but so many: others have fewer. */
  | { readonly kind: 'shed'; readonly keep: number }
  /** Drain and exit. A second message stops at once. */
  | { readonly kind: 'close' };

export type FromWorker =
  /** The worker now receives messages. */
  | { readonly kind: 'hello' }
  | { readonly kind: 'ready'; readonly url: string }
  /** The worker cannot start; the message is for the operator. */
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'beat'; readonly inFlight: number; readonly health?: HealthReport }
  | { readonly kind: 'report'; readonly report: WorkerReport }
  /** Its open connections, without those that it closes soon. */
  | { readonly kind: 'connections'; readonly count: number }
  /** The worker drains and exits after a fault, and accepts no new requests: replace it. */
  | { readonly kind: 'leaving' };

/** Set for a worker, which removes it. It tells our workers from those of another cluster, such as a process manager's. */
export const WORKER_VARIABLE = 'TOLLGATE_WORKER';

/** Heartbeat interval. */
export const HEARTBEAT_MS = 1_000;
/** Interval in which a worker tells a change of its connections. */
export const CONNECTIONS_MS = 100;
/** Interval of unrequested reports. Counts since the last report are lost when a worker is killed. */
export const REPORT_MS = 5_000;
