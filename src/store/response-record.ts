// What the store keeps of a response that an upstream stored: whose it is, and where it is. Nothing of what it says.

export interface StoredResponse {
  /** As the upstream named it, and as the client knows it. */
  readonly id: string;
  readonly holderId: string;
  /** The public name that it was asked for by. */
  readonly model: string;
  /** Names of the upstream that made it, and of the model there. */
  readonly upstream: string;
  readonly upstreamModel: string;
  /** RFC 3339, UTC. */
  readonly createdAt: string;
  /**
   * Tokens that were counted when it was begun in the background, whose use only a later look at it tells; null when nothing
   * is left to be counted.
   */
  readonly charged: number | null;
}

/** The part of the store that keeps where responses are. The contract of `Store` holds for its methods. */
export interface ResponseStore {
  /** Keeps it, unless there is one of this id: an upstream cannot give away what is another holder's. */
  addResponse(response: StoredResponse): Promise<void>;
  findResponse(id: string): Promise<StoredResponse | undefined>;
  /** Its use is counted by whoever calls this first. @returns whether that is this one */
  settleResponse(id: string): Promise<boolean>;
  removeResponse(id: string): Promise<void>;
  /**
   * Forgets those that were kept before a time.
   * @param before RFC 3339, UTC
   * @param limit most to forget in this call
   * @returns how many were forgotten
   */
  forgetResponses(before: string, limit: number): Promise<number>;
}
