// Records of objects at upstreams: the owner, without the object itself.

/** The holder of an object, and the name of the upstream that stores it. */
export interface ObjectOwner {
  readonly id: string;
  readonly upstream: string;
  readonly holderId: string;
}

export interface ObjectRecord extends ObjectOwner {
  /** `file`, `batch`, … */
  readonly kind: string;
  readonly purpose: string | null;
  /** When it was first seen, RFC 3339, UTC. */
  readonly createdAt: string;
}

/** An object that is created and deleted with a response: its items, containers, and the files in those. */
export interface ItemRecord extends ObjectOwner {
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

export type ListedObject = Pick<ObjectRecord, 'id' | 'purpose' | 'createdAt'>;

/** A page of the objects of one holder. */
export interface ObjectQuery {
  readonly upstream: string;
  readonly kind: string;
  readonly holderId: string;
  readonly purpose?: string | undefined;
  readonly order: 'asc' | 'desc';
  /** Cursor: only objects after this one. The page is empty when the holder does not own it. */
  readonly after?: string | undefined;
  /** Cursor: the objects directly before this one. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** Owners of objects in the store. The guarantees of `Store` apply to its methods. */
export interface ObjectStore {
  /**
   * Records the owner of objects, all or none. Objects that the holder already owns stay unchanged.
   * @returns false when another holder owns one of them; nothing is recorded then
   */
  addObjects(objects: readonly ObjectRecord[]): Promise<boolean>;
  /** Records items. An item whose id is known at its upstream stays unchanged. */
  addItems(items: readonly ItemRecord[]): Promise<void>;
  /**
   * Deletes records of items that were created before a time.
   * @param before RFC 3339, UTC
   * @param limit maximum number to delete in this call
   * @returns the number deleted
   */
  forgetItems(before: string, limit: number): Promise<number>;
  /** Owners of objects, ended or not, and of items, at any upstream. */
  ownersOf(ids: readonly string[]): Promise<readonly ObjectOwner[]>;
  /** Objects that have not ended, in the requested order. */
  objectsOf(query: ObjectQuery): Promise<readonly ListedObject[]>;
  /**
   * Ends an object that is gone at its upstream: lists omit it, and the holder stays its owner.
   * @param at RFC 3339, UTC
   * @returns whether this call ended it; of several calls, only one does
   */
  endObject(upstream: string, id: string, holderId: string, at: string): Promise<boolean>;
}
