// What the store keeps of an object at an upstream: whose it is. The object itself is the upstream's.

export interface ObjectRecord {
  /** Name of the upstream that keeps it. */
  readonly upstream: string;
  /** As the upstream calls it. */
  readonly id: string;
  /** `file`, `batch`, … */
  readonly kind: string;
  readonly holderId: string;
  /** Of a file: what it is for. */
  readonly purpose: string | null;
  /** RFC 3339, UTC: when it was first seen. */
  readonly createdAt: string;
}

/** The holder and the upstream of an object. */
export interface ObjectOwner {
  readonly id: string;
  readonly upstream: string;
  readonly holderId: string;
}

/** What was made along with a response, and is forgotten with it: its items, containers, and the files in those. */
export interface ItemRecord extends ObjectOwner {
  /** RFC 3339, UTC. */
  readonly createdAt: string;
}

/** A page of the objects of one holder. */
export interface ObjectQuery {
  readonly upstream: string;
  readonly kind: string;
  readonly holderId: string;
  readonly purpose?: string | undefined;
  readonly order: 'asc' | 'desc';
  /** Behind this one in the order; one that is not the holder's begins nowhere, and the page is empty. */
  readonly after?: string | undefined;
  /** In front of this one, the nearest to it. */
  readonly before?: string | undefined;
  readonly limit: number;
}

/** The part of the store that knows whose objects are. The contract of `Store` holds for its methods. */
export interface ObjectStore {
  /**
   * Records objects as a holder's, all of them or none. One that is the holder's already stays as it is.
   * @returns false when one of them is somebody else's: then nothing was recorded
   */
  addObjects(objects: readonly ObjectRecord[]): Promise<boolean>;
  /** Records items; one whose id is known at its upstream stays as it is. */
  addItems(items: readonly ItemRecord[]): Promise<void>;
  /**
   * Deletes records of items that were made before a time.
   * @param before RFC 3339, UTC
   * @param limit most to delete in this call
   * @returns how many were deleted
   */
  forgetItems(before: string, limit: number): Promise<number>;
  /** Owners of objects, ended or not, and of items, at whichever upstream. */
  ownersOf(ids: readonly string[]): Promise<readonly ObjectOwner[]>;
  /** Ids of those that have not ended, in their order. */
  objectsOf(query: ObjectQuery): Promise<readonly string[]>;
  /**
   * An object of this holder's is gone at its upstream: it is in no list any more, and still nobody else's.
   * @param at RFC 3339, UTC
   */
  endObject(upstream: string, id: string, holderId: string, at: string): Promise<void>;
}
