// Whose the objects are that an upstream keeps: what a request means has to be its holder's, and what an upstream makes for a
// holder is the holder's before the holder hears of it. Where that cannot be known, nothing is sent and nothing is shown.
import { GatewayError } from '../errors.ts';
import type { ObjectQuery, ObjectStore } from '../store/object-record.ts';
import type { References } from './object-references.ts';

/** Ids in one look-up. */
const AT_ONCE = 1000;

/** An object that was made, or was seen to be part of what is the holder's. */
export interface SeenObject {
  readonly id: string;
  readonly kind: string;
  readonly purpose?: string | undefined;
}

/** The objects of one holder at one upstream. */
export class HolderObjects {
  readonly #store: ObjectStore;
  readonly #upstream: string;
  readonly #holderId: string;

  constructor(store: ObjectStore, upstream: string, holderId: string) {
    this.#store = store;
    this.#upstream = upstream;
    this.#holderId = holderId;
  }

  /** @throws GatewayError object_not_found, in the same words for what is another's and what is nobody's; store_unavailable */
  async check({ certain, possible }: References): Promise<void> {
    const ids = [...certain, ...possible];
    for (let start = 0; start < ids.length; start += AT_ONCE) {
      const some = ids.slice(start, start + AT_ONCE);
      const owners = await this.#store.ownersOf(this.#upstream, some);
      for (const id of some) {
        const owner = owners.get(id);
        if (owner === this.#holderId || (owner === undefined && !certain.has(id))) continue;
        throw new GatewayError('object_not_found');
      }
    }
  }

  /**
   * From now on these are the holder's.
   * @throws GatewayError upstream_invalid_response when one of them is somebody else's: the upstream gave an id twice, and
   *   nothing of the answer may be shown; store_unavailable
   */
  async take(seen: readonly SeenObject[]): Promise<void> {
    if (seen.length === 0) return;
    const createdAt = new Date().toISOString();
    const objects = seen.map(({ id, kind, purpose }) => ({
      upstream: this.#upstream,
      id,
      kind,
      holderId: this.#holderId,
      purpose: purpose ?? null,
      createdAt,
    }));
    if (await this.#store.addObjects(objects)) return;
    const cause = new Error('the upstream named an object that is of another holder');
    throw new GatewayError('upstream_invalid_response', undefined, { cause });
  }

  list(query: Omit<ObjectQuery, 'upstream' | 'holderId'>): Promise<readonly string[]> {
    return this.#store.objectsOf({ ...query, upstream: this.#upstream, holderId: this.#holderId });
  }

  /** It is gone at the upstream. */
  end(id: string): Promise<void> {
    return this.#store.endObject(this.#upstream, id, this.#holderId, new Date().toISOString());
  }
}
