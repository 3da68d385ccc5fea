// Owner and upstream of each stored response: recorded when it is created, and looked up when a later call names it. The store is
// authoritative for all replicas; a cache of recent lookups saves queries.
import type { Principal } from '../../auth/key/principal.ts';
import { withDeadline } from '../../deadline.ts';
import { GatewayError } from '../../errors.ts';
import { RecentMap } from '../../recent-map.ts';
import type { ResponseStore, StoredResponse } from '../../store/response-record.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import { type CreatedObjects, MAX_ITEMS } from '../../wire/created-objects.ts';
import type { RequestFacts, SocketSession } from '../contracts/endpoint.ts';
import type { AttemptUse, RelayRequest } from '../contracts/receiver.ts';
import type { Route, Target } from '../routes/route-table.ts';
import type { ObjectOwners } from './object-owners.ts';
import { RecordRetention } from './record-retention.ts';
import { sealId } from './sealed-content.ts';

/** The longest delay of an answer by its record. */
const REGISTER_MS = 1_000;
const MAX_RECENT = 10_000;

/** Ids that can be recorded; no vendor uses others. */
const RECORDABLE_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** One request that creates a response. */
interface RegistrarOptions {
  readonly stored: StoredResponses;
  readonly objects: Pick<ObjectOwners, 'record'>;
  readonly principal: Pick<Principal, 'holderId'>;
  readonly route: Pick<Route, 'model' | 'history'>;
  readonly facts: Pick<RequestFacts, 'isBackground' | 'estimate'>;
  /** Whether the request lets the upstream store the response. */
  readonly isStored: boolean;
  readonly meter: RelayRequest['meter'];
  readonly session?: SocketSession | undefined;
  /** Reads the usage of a background response that no call shows. Default: nobody does. */
  readonly background?: BackgroundEvents | undefined;
}

/** What becomes of a background response. */
interface BackgroundEvents {
  watch(id: string, target: Target): void;
  /** Its stream ended without usage. */
  saw(id: string, use: AttemptUse): void;
  settled(id: string): void;
}

type Registrar = Pick<RelayRequest, 'meter'> & { readonly register: NonNullable<RelayRequest['register']> };

/**
 * The hooks by which a relay records its response. A background response is charged its estimated input at first, and the rest when
 * a later call reads its usage, unless the answer itself reports it.
 */
export function responseRegistrar(options: RegistrarOptions): Registrar {
  const { stored, objects, principal, route, facts, meter, isStored, session, background } = options;
  const isBackground = facts.isBackground === true;
  const grown = [...(route.history?.conversations ?? [])];
  let registered: { readonly id: string; readonly written: Promise<void> } | undefined;
  const record = itemRecorder(objects, principal.holderId);
  return {
    async register(created, target) {
      const { upstream, model: upstreamModel } = target;
      const seals = (created.seals ?? []).map((seal) => ({ id: sealId(seal, target), isLasting: true }));
      const all = { items: [...created.items, ...seals], isStored: created.isStored && isStored };
      const items = record(all, upstream.name);
      const { id } = created;
      if (id !== undefined) {
        session?.made(id, target);
        grown.push(id);
      }
      if (id === undefined || !isStored) return items;
      const charged = isBackground ? chargedAtFirst(facts, route) : null;
      const about = { id, holderId: principal.holderId, model: route.model, upstream: upstream.name };
      const written = stored.register({ ...about, upstreamModel, charged });
      registered = { id, written };
      if (isBackground && RECORDABLE_ID.test(id)) background?.watch(id, target);
      await Promise.all([written, items]);
    },
    meter: {
      add(use) {
        if (use.usage !== null) stored.learnHistory(grown, use.usage.total);
        // The usage of a background response whose client left is read later, if its id is known.
        const unreported = registered === undefined ? use.unreported : undefined;
        const isLeft = isBackground && use.outcome === 'client_closed';
        meter.add(isLeft ? { ...use, outputs: 0, unreported } : use);
        if (!isBackground || registered === undefined) return;
        const { id, written } = registered;
        if (use.usage === null) {
          background?.saw(id, use);
          return;
        }
        background?.settled(id);
        void written.then(() => stored.settle(id));
      },
    },
  };
}

/** The tokens that a background response counts until its usage is known. */
export function chargedAtFirst(
  { estimate }: Pick<RequestFacts, 'estimate'>,
  { history }: Pick<Route, 'history'>,
): number {
  return estimate.prompt + (history?.tokens ?? 0);
}

/** Records each item of one answer once; for streams incrementally, with one write at a time. */
export function itemRecorder(
  objects: Pick<ObjectOwners, 'record'>,
  holderId: string,
): (created: CreatedObjects, upstream: string) => Promise<void> {
  const seen = new Set<string>();
  let waiting: string[] = [];
  let writing: Promise<void> | undefined;
  const write = async (upstream: string) => {
    while (waiting.length > 0) {
      const ids = waiting;
      waiting = [];
      await objects.record(ids, upstream, holderId);
    }
    writing = undefined;
  };
  return async ({ items, isStored }, upstream) => {
    for (const { id, isLasting } of items) {
      if ((!isStored && !isLasting) || seen.has(id) || seen.size >= MAX_ITEMS) continue;
      seen.add(id);
      waiting.push(id);
    }
    if (waiting.length > 0) writing ??= write(upstream);
    await writing;
  };
}

interface StoredResponsesOptions {
  readonly store: ResponseStore;
  readonly logger: Pick<Logger, 'warn'>;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
}

export class StoredResponses {
  readonly #store: ResponseStore;
  readonly #retention: RecordRetention;
  readonly #clock: () => number;
  readonly #recent = new RecentMap<string, StoredResponse>(MAX_RECENT);
  /** Id of a response or a conversation → tokens that it adds to the prompt of the next response. */
  readonly #histories = new RecentMap<string, number>(MAX_RECENT);

  constructor({ store, logger, clock = Date.now }: StoredResponsesOptions) {
    this.#store = store;
    this.#retention = new RecordRetention({
      remove: (before, limit) => store.forgetResponses(before, limit),
      logger,
      message: 'failed to record a stored response; later calls about it will get 404',
    });
    this.#clock = clock;
  }

  /**
   * Records a response that an upstream created. Settles within a second and never rejects: the answer is paid for, so the client
   * receives it even if it cannot be found later.
   */
  async register(response: Omit<StoredResponse, 'createdAt'>): Promise<void> {
    if (!RECORDABLE_ID.test(response.id)) return;
    const now = this.#clock();
    const record = { ...response, createdAt: new Date(now).toISOString() };
    try {
      const late = () => new GatewayError('store_unavailable');
      await withDeadline(this.#store.addResponse(record), REGISTER_MS, late);
    } catch (error) {
      this.#retention.warn(error);
    }
    this.#retention.onRecord(now);
  }

  /**
   * @returns the response, if it is this holder's
   * @throws GatewayError response_not_found, also for another holder's, to hide its existence; store_unavailable
   */
  async find(id: string, holderId: string): Promise<StoredResponse> {
    const found = RECORDABLE_ID.test(id)
      ? (this.#recent.get(id) ?? (await this.#store.findResponse(id)))
      : undefined;
    if (found?.holderId !== holderId) throw new GatewayError('response_not_found');
    // Cache only what the store returned: after a conflicting insert, the row is another holder's.
    this.#recent.set(id, found);
    return found;
  }

  /** Responses, or conversations, have so many tokens in all. */
  learnHistory(ids: readonly string[], tokens: number): void {
    for (const id of ids) this.#histories.set(id, tokens);
  }

  /** The most that one of these responses or conversations is known to have; 0 for unknown ones. */
  historyOf(ids: readonly string[]): number {
    return Math.max(0, ...ids.map((id) => this.#histories.get(id) ?? 0));
  }

  /** @returns whether the caller must count its usage now; false also when the store fails */
  async settle(id: string): Promise<boolean> {
    this.#recent.delete(id);
    try {
      return await this.#store.settleResponse(id);
    } catch (error) {
      this.#retention.warn(error);
      return false;
    }
  }

  /** The upstream deleted the response. */
  async remove(id: string): Promise<void> {
    this.#recent.delete(id);
    try {
      await this.#store.removeResponse(id);
    } catch (error) {
      // Retention deletes the record later; until then the upstream reports the response as deleted.
      this.#retention.warn(error);
    }
  }
}
