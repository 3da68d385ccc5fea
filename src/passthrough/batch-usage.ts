// The usage of batches: each counts once, for the key that created it, no matter who reads its output. The store has the batches that are not
// counted; one process of the fleet follows them until they end, and a call that shows an output counts it before.
import { randomUUID } from 'node:crypto';
import type { Principal } from '../auth/key/principal.ts';
import type { DynamicConfig } from '../config/schema/config-schema.ts';
import { GatewayError } from '../errors.ts';
import { wholeBody } from '../http/pieces/body-buffer.ts';
import type { Scopes } from '../limits/scope.ts';
import type { Endpoint } from '../proxy/contracts/endpoint.ts';
import { HolderObjects, type ObjectOwners } from '../proxy/objects/object-owners.ts';
import { findLimitedOwner } from '../proxy/reservation/limit-report.ts';
import { countEarlier, type RunningReservationOptions } from '../proxy/reservation/running-reservation.ts';
import { type ConfigSnapshot, whileHeld } from '../proxy/routes/config-snapshot.ts';
import { askUpstream, isGone, UsageFollower } from '../proxy/usage-follower.ts';
import { Repeat } from '../repeat.ts';
import type { Store } from '../store/store.ts';
import type { Logger } from '../telemetry/log/logger.ts';
import type { Metrics } from '../telemetry/metrics/all-metrics.ts';
import type { Upstream } from '../upstream/upstream.ts';
import {
  type BatchState,
  type BatchUse,
  batchStateIn,
  isReportEnough,
  usesInOutput,
} from './batch-output.ts';
import {
  type Creator,
  creatorIn,
  modelInRecord,
  UNCOUNTED,
  type UncountedBatch,
  uncountedBatch,
  uncountedOutput,
} from './batch-records.ts';
import { endpointOfBatch } from './batches.ts';

const TASK = 'usage of batches';
const FIRST = { order: 'asc', limit: 1 } as const;
const PAGE = 500;
/** The longest pause between two questions, and the lease of the process that asks, in first pauses. */
const LONGEST = 15;
const LEASE = 3;
/** Vendors keep results for 30 days at most. */
const MAX_AGE_MS = 30 * 24 * 3_600_000;
/** A new batch may not be known everywhere at its upstream. */
const NEW_MS = 3_600_000;
/** A record that was written at the same time may become visible later. */
const SETTLED_MS = 5 * 60_000;
const ASK_MS = 30_000;
const READ_MS = 10 * 60_000;
const MAX_BATCH = 4 * 1024 * 1024;

export interface BatchUsageOptions {
  readonly snapshot: () => ConfigSnapshot;
  readonly objects: ObjectOwners;
  readonly metering: RunningReservationOptions;
  readonly store: Pick<Store, 'findKey' | 'findHolder' | 'billing'>;
  readonly metrics: Pick<Metrics, 'followedUsage'>;
  readonly logger: Pick<Logger, 'warn'>;
}

/** A batch at its upstream, with the configuration in force. */
interface PlacedBatch extends Pick<ConfigSnapshot, 'config' | 'routes'> {
  readonly upstream: Upstream;
  readonly batch: string;
  readonly objects: HolderObjects;
  /** Counts instead of a creator that is not recorded. */
  readonly reader?: Creator;
}

export class BatchUsage {
  readonly #options: BatchUsageOptions;
  readonly #follower: UsageFollower<UncountedBatch>;
  readonly #owner = randomUUID();
  readonly #sweeps = new Repeat(async () => {
    await this.#sweep();
    return this.#pause;
  });
  /** Records up to this one are followed. */
  #after: string | undefined;

  constructor(options: BatchUsageOptions) {
    this.#options = options;
    this.#follower = new UsageFollower<UncountedBatch>({
      kind: 'batch',
      pauses: () => ({ first: this.#pause, longest: LONGEST * this.#pause }),
      // An output may have hundreds of megabytes.
      atOnce: 2,
      maxAge: MAX_AGE_MS,
      ask: async (uncounted) => {
        const isOver = await this.#ask(uncounted);
        if (isOver) await this.#forget(uncounted);
        return isOver;
      },
      onGivenUp: (uncounted) => this.#forget(uncounted),
      metrics: options.metrics,
    });
    this.#sweeps.start(this.#pause);
  }

  /** Another process follows the batches from now on. */
  async close(): Promise<void> {
    await this.#sweeps.stop();
    this.#follower.clear();
    if (this.#isOffered) await this.#lease(0).catch(() => undefined);
  }

  /**
   * Counts the batches whose outputs these files are, as far as they are not counted. For other files it costs a look-up.
   * @param isDeleted whether the files are deleted then: what cannot be counted now cannot be counted later
   * @throws GatewayError upstream_timeout for such a file
   */
  async countOutputs(
    files: Iterable<string>,
    place: Omit<PlacedBatch, 'batch' | 'reader'> & { readonly principal: Principal },
    isDeleted: boolean,
  ): Promise<void> {
    for (const file of files) {
      const isCounted = await this.#countOutput(file, place, place.principal).catch(() => false);
      if (isCounted || !isDeleted) continue;
      const message = 'The usage of the batch that wrote this file could not be read. Try again later.';
      throw new GatewayError('upstream_timeout', message);
    }
  }

  async #countOutput(file: string, place: Omit<PlacedBatch, 'batch'>, reader: Creator): Promise<boolean> {
    const [output] = await place.objects.list({ kind: `batch of ${file}`, ...FIRST });
    if (output === undefined) return true;
    const batch = output.id.slice(file.length + 1);
    const { status, state } = await this.#read(place.upstream, batch);
    const known = isGone(status) ? { isOver: true, output: file } : state;
    if (!known.isOver) return false;
    await this.#count({ ...place, batch, reader }, known);
    return true;
  }

  get #pause(): number {
    return this.#options.snapshot().config.passthrough?.batch_poll ?? 60_000;
  }

  get #isOffered(): boolean {
    return this.#options.snapshot().config.passthrough?.paths.includes('/v1/batches') === true;
  }

  /** @param ms from now */
  #lease(ms: number): Promise<boolean> {
    const now = Date.now();
    const [at = '', until = ''] = [now, now + ms].map((time) => new Date(time).toISOString());
    return this.#options.store.billing.takeTask(TASK, this.#owner, at, until);
  }

  /** Follows new batches, if no other process does. Never rejects. */
  async #sweep(): Promise<void> {
    if (!this.#isOffered) return;
    try {
      if (await this.#lease(LEASE * this.#pause)) {
        await this.#followNew();
      } else {
        this.#follower.clear();
        this.#after = undefined;
      }
    } catch (error) {
      this.#options.logger.warn(
        { err: error },
        'failed to look for batches whose usage is not counted; retrying',
      );
    }
  }

  async #followNew(): Promise<void> {
    const now = Date.now();
    for (let after = this.#after; !this.#follower.isFull; ) {
      const page = await this.#options.objects.store.objectsOf({
        ...UNCOUNTED,
        order: 'asc',
        after,
        limit: PAGE,
      });
      for (const record of page) {
        if (this.#follower.isFull) return;
        const batch = uncountedBatch(record);
        const age = now - batch.createdAt;
        this.#follower.follow(batch, age);
        after = batch.id;
        if (age > SETTLED_MS) this.#after = after;
      }
      if (page.length < PAGE) return;
    }
  }

  async #forget({ id }: UncountedBatch): Promise<void> {
    const { upstream, holderId } = UNCOUNTED;
    await this.#options.objects.store.endObject(upstream, id, holderId, new Date().toISOString());
  }

  /** @returns whether nothing is left to be counted */
  async #ask({ upstream: name, batch, holderId, createdAt }: UncountedBatch): Promise<boolean> {
    let isOver = false;
    await whileHeld(this.#options.snapshot(), async ({ config, routes }) => {
      const upstream = routes.upstream(name);
      if (upstream === undefined) return;
      const { status, state } = await this.#read(upstream, batch);
      const isLost = isGone(status) && Date.now() - createdAt > NEW_MS;
      const objects = new HolderObjects(this.#options.objects, upstream.name, holderId);
      if (isLost) this.#countGone();
      else if (state.isOver) await this.#count({ config, routes, upstream, batch, objects }, state);
      isOver = isLost || state.isOver;
    });
    return isOver;
  }

  /** @throws GatewayError */
  #read(upstream: Upstream, batch: string): Promise<{ readonly status: number; readonly state: BatchState }> {
    return askUpstream(upstream, `batches/${encodeURIComponent(batch)}`, ASK_MS, async (status, pieces) => {
      const body = status === 200 ? await wholeBody(pieces, MAX_BATCH) : undefined;
      return { status, state: body === undefined ? { isOver: false } : batchStateIn(body) };
    });
  }

  /**
   * @param state of a batch that is over
   * @throws GatewayError of the store or the upstream
   */
  async #count(place: PlacedBatch, { output, reported }: BatchState): Promise<void> {
    const { config, routes, upstream, batch, objects, reader } = place;
    if (output === undefined && reported === undefined) return;
    const file = output ?? batch;
    // The output file has an owner before anybody reads it. Without one, the record of the batch tells whether it is counted.
    await objects.claim([
      ...(output === undefined ? [] : [{ id: output, kind: 'file', purpose: 'batch_output' }]),
      uncountedOutput(file, batch),
    ]);
    const [uncounted] = await objects.list({ kind: `batch of ${file}`, ...FIRST });
    const [named] = await objects.list({ kind: `model of ${batch}`, ...FIRST });
    const creator = creatorIn(named?.purpose ?? null, objects.holderId) ?? reader;
    if (uncounted === undefined || named === undefined || creator === undefined) return;
    const { path, model } = modelInRecord(named.id, batch);
    const endpoint = endpointOfBatch(path);
    const route = routes.find(model);
    const { model: target = '', price } = route?.targets.find((each) => each.upstream === upstream) ?? {};
    const entry = route?.entry ?? 'unknown';
    const isEnough =
      output === undefined || (reported !== undefined && isReportEnough(endpoint, price, Date.now()));
    const uses = isEnough ? [reported] : await this.#usesInFile(upstream, output, endpoint, reported);
    const scopes = await this.#scopesOf(creator, config, entry);
    // Of several processes and calls, one counts. Behind this nothing can fail.
    if (!(await objects.markDeleted(uncounted.id))) return;
    const share = 1 - (config.passthrough?.batch_discount ?? 0) / 100;
    const of = {
      endpoint: endpoint.name,
      upstream: upstream.name,
      model,
      entry,
      target,
      scopes,
      price,
      share,
    };
    for (const use of uses)
      if (use !== undefined) countEarlier(this.#options.metering, creator, config.tiers, { ...use, ...of });
  }

  /** @param reported counts instead of a file that is gone */
  #usesInFile(
    upstream: Upstream,
    file: string,
    endpoint: Endpoint,
    reported: BatchUse | undefined,
  ): Promise<readonly (BatchUse | undefined)[]> {
    return askUpstream(
      upstream,
      `files/${encodeURIComponent(file)}/content`,
      READ_MS,
      async (status, pieces) => {
        if (status === 200) return usesInOutput(pieces, endpoint);
        if (!isGone(status)) throw new GatewayError('upstream_error');
        if (reported === undefined) this.#countGone();
        return [reported];
      },
    );
  }

  async #scopesOf(creator: Creator, config: DynamicConfig, entry: string): Promise<Scopes> {
    const { store, metering } = this.#options;
    const { prefix, tier, teamId, holderId } = creator;
    const known = await findLimitedOwner(store, prefix);
    const terms = known ?? { holderId, holderTerms: {}, terms: {}, lineage: prefix };
    return metering.scopes.of({ ...terms, tier, teamId }, config, entry);
  }

  #countGone(): void {
    this.#options.metrics.followedUsage.givenUp.inc({ kind: 'batch', reason: 'gone' });
  }
}
