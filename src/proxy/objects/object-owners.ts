// Ownership of objects at upstreams: a request may refer only to its holder's objects, and objects created for a holder are recorded
// as such. It fails closed: without a record, nothing is sent and nothing is shown.
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { RecentMap } from '../../recent-map.ts';
import type {
  ListedObject,
  ObjectOwner,
  ObjectQuery,
  ObjectRecord,
  ObjectStore,
} from '../../store/object-record.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import { RecordRetention } from './record-retention.ts';
import type { References } from './reference-set.ts';

/** Ids per lookup. */
const AT_ONCE = 1000;
/** Ids that can be recorded: none that a server could interpret as another path. */
const RECORDABLE = /^[\w.:-]{1,200}$/;
/** The longest delay of an answer by the record of its items. */
const RECORD_MS = 1_000;
const MAX_RECENT = 50_000;

/** An object that was created, or is part of one of the holder's. */
export interface SeenObject {
  readonly id: string;
  readonly kind: string;
  readonly purpose?: string | undefined;
}

/** A possible upstream, with its objects that every holder may refer to. */
interface ObjectUpstream {
  readonly name: string;
  /** Ids; one ending with `*` is a prefix. */
  readonly shared: readonly string[];
}

interface ObjectOwnersOptions {
  readonly store: ObjectStore;
  readonly logger: Pick<Logger, 'warn'>;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

type Owners = readonly ObjectOwner[];
const NO_OWNERS: Owners = [];

/** The objects of all holders at all upstreams. */
export class ObjectOwners {
  readonly store: ObjectStore;
  readonly #retention: RecordRetention;
  readonly #clock: () => number;
  /** Verified ownership, which never changes. */
  readonly #recent = new RecentMap<string, Owners>(MAX_RECENT);
  /** Holder → pending records, which a lookup waits for. */
  readonly #recording = new Map<string, Promise<unknown>>();

  constructor({ store, logger, clock = Date.now }: ObjectOwnersOptions) {
    this.store = store;
    this.#retention = new RecordRetention({
      remove: (before, limit) => store.forgetItems(before, limit),
      logger,
      message: 'failed to record the owner of response items; requests that refer to them will be rejected',
    });
    this.#clock = clock;
  }

  /**
   * The upstreams that have every referenced object, as the holder's or as shared.
   * @throws GatewayError object_not_found when none has, or when an object is another holder's (the same message as for an unknown
   *   object); store_unavailable
   */
  async upstreamsWith<Candidate extends ObjectUpstream>(
    { certain, possible }: References,
    holderId: string,
    upstreams: readonly Candidate[],
  ): Promise<readonly Candidate[]> {
    // Listed objects are the operator's, and unrecordable ids have no owner: nothing to look up.
    const listed = new Set(upstreams.flatMap(({ shared }) => shared));
    const ids = [...certain, ...possible].filter((id) => RECORDABLE.test(id) && !listed.has(id));
    const others = [...certain].filter((id) => !RECORDABLE.test(id) || listed.has(id));
    let candidates = upstreams.filter(({ shared }) => others.every((id) => isShared(id, shared)));
    for (let start = 0; start < ids.length; start += AT_ONCE) {
      const some = ids.slice(start, start + AT_ONCE);
      const owners = await this.#ownersOf(some, holderId);
      for (const id of some) {
        const known = owners.get(id) ?? NO_OWNERS;
        const own = known.filter((owner) => owner.holderId === holderId);
        if (known.length > 0 && own.length === 0) throw new GatewayError('object_not_found');
        if (!certain.has(id)) continue;
        candidates = candidates.filter(
          ({ name, shared }) => own.some(({ upstream }) => upstream === name) || isShared(id, shared),
        );
      }
    }
    if (candidates.length === 0) throw new GatewayError('object_not_found');
    return candidates;
  }

  /**
   * Records items created for a holder. Settles within a second and never rejects: the answer is paid for, so the client receives it
   * even if its items cannot be referred to later.
   */
  async record(items: readonly string[], upstream: string, holderId: string): Promise<void> {
    if (items.length === 0) return;
    const now = this.#clock();
    const createdAt = new Date(now).toISOString();
    const late = () => new GatewayError('store_unavailable');
    const recordable = items.filter((id) => RECORDABLE.test(id));
    const written = withDeadline(
      this.store.addItems(recordable.map((id) => ({ id, upstream, holderId, createdAt }))),
      RECORD_MS,
      late,
    ).catch((error: unknown) => this.#retention.warn(error));
    const all = Promise.all([this.#recording.get(holderId), written]);
    this.#recording.set(holderId, all);
    await all;
    if (this.#recording.get(holderId) === all) this.#recording.delete(holderId);
    this.#retention.onRecord(now);
  }

  /** Those of the ids that are recorded as the holder's; none when the store does not answer. */
  async recorded(ids: readonly string[], holderId: string): Promise<ReadonlySet<string>> {
    try {
      const owners = await this.#ownersOf(ids, holderId);
      return new Set(
        ids.filter((id) => owners.get(id)?.some((owner) => owner.holderId === holderId) === true),
      );
    } catch (error) {
      this.#retention.warn(error);
      return new Set();
    }
  }

  async #ownersOf(ids: readonly string[], holderId: string): Promise<ReadonlyMap<string, Owners>> {
    const found = new Map<string, Owners>();
    await this.#recording.get(holderId);
    const unknown = ids.filter((id) => {
      const owners = this.#recent.get(id);
      if (owners?.some((owner) => owner.holderId === holderId) !== true) return true;
      found.set(id, owners);
      return false;
    });
    if (unknown.length === 0) return found;
    for (const owner of await this.store.ownersOf(unknown))
      found.set(owner.id, [...(found.get(owner.id) ?? NO_OWNERS), owner]);
    for (const id of unknown) {
      const owners = found.get(id);
      if (owners?.some((owner) => owner.holderId === holderId) === true) this.#recent.set(id, owners);
    }
    return found;
  }
}

/** The objects of one holder at one upstream. */
export class HolderObjects {
  readonly #objects: ObjectOwners;
  readonly #upstream: string;
  readonly holderId: string;

  constructor(objects: ObjectOwners, upstream: string, holderId: string) {
    this.#objects = objects;
    this.#upstream = upstream;
    this.holderId = holderId;
  }

  /** @param shared as `ObjectUpstream.shared`. Default: none @throws GatewayError as `ObjectOwners.upstreamsWith` */
  async check(references: References, shared: readonly string[] = []): Promise<void> {
    await this.#objects.upstreamsWith(references, this.holderId, [{ name: this.#upstream, shared }]);
  }

  /**
   * Records the objects as the holder's, and others with them.
   * @throws GatewayError upstream_invalid_response when one is another holder's: the upstream reused an id, and the answer must not be
   *   shown; store_unavailable
   */
  async claim(seen: readonly SeenObject[], others: readonly ObjectRecord[] = []): Promise<void> {
    if (seen.length === 0) return;
    const createdAt = new Date().toISOString();
    const objects = seen.map(({ id, kind, purpose }) => ({
      upstream: this.#upstream,
      id,
      kind,
      holderId: this.holderId,
      purpose: purpose ?? null,
      createdAt,
    }));
    if (await this.#objects.store.addObjects([...objects, ...others])) return;
    const cause = new Error('the upstream returned an object of another holder');
    throw new GatewayError('upstream_invalid_response', undefined, { cause });
  }

  /** As `ObjectOwners.record`, for items of the holder's objects. */
  record(items: readonly string[]): Promise<void> {
    return this.#objects.record(items, this.#upstream, this.holderId);
  }

  list(query: Omit<ObjectQuery, 'upstream' | 'holderId'>): Promise<readonly ListedObject[]> {
    const of = { upstream: this.#upstream, holderId: this.holderId };
    return this.#objects.store.objectsOf({ ...query, ...of });
  }

  /** The upstream deleted the object. @returns whether this call marked it */
  markDeleted(id: string): Promise<boolean> {
    return this.#objects.store.endObject(this.#upstream, id, this.holderId, new Date().toISOString());
  }
}

function isShared(id: string, shared: readonly string[]): boolean {
  return shared.some((each) => (each.endsWith('*') ? id.startsWith(each.slice(0, -1)) : id === each));
}
