// A body that is sent piece by piece. Where one comes from is upload.ts, or body-pieces.ts; what is sent of it at which pace
// is for whoever sends.

export interface BodySource {
  /** In bytes, if it is known before the end. */
  readonly length: number | undefined;
  /** All of it is in memory: it can be sent again and again, and nobody is waited for but the receiver. Default false. */
  readonly isInMemory?: boolean;
  /** From its first byte. Whether a second time is for whoever made it to say. */
  open(): BodyReader;
  /** Of one in memory: all of it in one. */
  whole?(): Buffer;
}

/** Whether a body is one of these, and not one Buffer. */
export function isSource(body: Buffer | BodySource): body is BodySource {
  return 'open' in body;
}

/** Whether a body is not in memory, so that it comes at a pace of its own, and perhaps only once. */
export function isStreamed(body: Buffer | BodySource): body is BodySource {
  return isSource(body) && body.isInMemory !== true;
}

export interface BodyReader {
  /**
   * The next piece; undefined at the end. One call at a time.
   * @throws GatewayError (rejects): the rest will not come
   */
  next(): Promise<Buffer | undefined>;
  /** Nobody wants the rest. A call of `next` that waits may then never be settled. Idempotent. */
  cancel(): void;
  /** Nobody reads any piece of it any more, the system neither. Absent where that does not matter. Idempotent. */
  released?(): void;
}
