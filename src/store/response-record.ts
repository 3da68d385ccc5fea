// Records of responses that upstreams store: owner and location, without content.

export interface StoredResponse {
  /** The upstream's id, which clients use too. */
  readonly id: string;
  readonly holderId: string;
  /** Public name of the requested model. */
  readonly model: string;
  /** Name of the upstream; `upstreamModel` is the name of the model there. */
  readonly upstream: string;
  readonly upstreamModel: string;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /**
   * Tokens that were reserved for a background response, whose usage only a later retrieval shows; null when its usage is
   * counted.
   */
  readonly charged: number | null;
}

/** Stored responses in the store. The guarantees of `Store` apply to its methods. */
export interface ResponseStore {
  /** Adds a record unless the id exists: an upstream cannot reassign another holder's response. */
  addResponse(response: StoredResponse): Promise<void>;
  findResponse(id: string): Promise<StoredResponse | undefined>;
  /** Claims the right to count the usage of a response. @returns true for the first call only */
  settleResponse(id: string): Promise<boolean>;
  removeResponse(id: string): Promise<void>;
  /**
   * Deletes records that were created before a time.
   * @param before RFC 3339, UTC
   * @param limit maximum number to delete in this call
   * @returns the number deleted
   */
  forgetResponses(before: string, limit: number): Promise<number>;
}
