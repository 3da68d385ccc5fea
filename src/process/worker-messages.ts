// What the primary and its workers say to each other. Both ends are always of this file: a worker is forked by its primary
// from the same code, and nobody else has the channel.
import type { Registry } from 'prom-client';
import type { TargetState } from '../http/admin/admin-listener.ts';
import type { HealthReport } from '../http/admin/health.ts';

/** Metrics of one process as prom-client gives them. */
export type Samples = Awaited<ReturnType<Registry['getMetricsAsJSON']>>;

/** All that the admin listener has to know of a worker. */
export interface WorkerReport {
  readonly samples: Samples;
  readonly targets: readonly TargetState[];
}

/** With what a worker starts. */
export interface WorkerStart {
  readonly kind: 'begin';
  readonly file: string;
  /** With which the primary began: what takes a restart is read from here. */
  readonly first: Buffer;
  /** In force now: all else is read from here. */
  readonly bytes: Buffer;
  /** The file holds something else by now, which cannot be used. */
  readonly isRejected: boolean;
  /** Of the public listener. 0 takes a free one, the same for all who are there. */
  readonly port: number;
  /** How many workers there are. */
  readonly count: number;
}

export type ToWorker =
  | WorkerStart
  /** A configuration that was found to be good; the worker is to come to this hash. */
  | { readonly kind: 'config'; readonly bytes: Buffer; readonly hash: string }
  | { readonly kind: 'rejected' }
  | { readonly kind: 'report' }
  /** Drain and end; said again, at once. */
  | { readonly kind: 'close' };

export type FromWorker =
  /** It hears what is said to it from now on. */
  | { readonly kind: 'hello' }
  | { readonly kind: 'ready'; readonly url: string }
  /** It cannot start. In words for whoever has to change something. */
  | { readonly kind: 'failed'; readonly message: string }
  | { readonly kind: 'beat'; readonly inFlight: number; readonly health?: HealthReport }
  | { readonly kind: 'report'; readonly report: WorkerReport }
  /** It ends by itself when what runs has ended, and takes nothing new: another one is to take its place. */
  | { readonly kind: 'leaving' };

/** Set for a worker, and removed by it: in another cluster (a process manager's) this process is no worker. */
export const WORKER_VARIABLE = 'TOLLGATE_WORKER';

/** Between two signs of life. */
export const BEAT_MS = 1_000;
/** Between two reports that nobody asked for: what a worker counted since then is lost when it is killed. */
export const REPORT_MS = 5_000;
