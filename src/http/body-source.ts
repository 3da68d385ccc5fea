// A body that is sent without ever being in memory as a whole. Where one comes from is upload.ts, what is sent of
// it at which pace is for whoever sends.

export interface BodySource {
  /** In bytes, if it is known before the end. */
  readonly length: number | undefined;
  /** From its first byte. Whether a second time is for whoever made it to say. */
  open(): BodyReader;
}

/** Whether a body is one of these, and not in memory. */
export function isSource(body: Buffer | BodySource): body is BodySource {
  return 'open' in body;
}

export interface BodyReader {
  /**
   * The next piece; undefined at the end. One call at a time.
   * @throws GatewayError (rejects): the rest will not come
   */
  next(): Promise<Buffer | undefined>;
  /** Nobody wants the rest. A call of `next` that waits may then never be settled. Idempotent. */
  cancel(): void;
}
