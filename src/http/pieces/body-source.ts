// Contract of a body that is sent piece by piece. Sources are upload.ts and body-pieces.ts; the sender sets the pace.

export interface BodySource {
  /** In bytes, if known in advance. */
  readonly length: number | undefined;
  /** The body is in memory: it can be replayed, and only the receiver causes waits. Default false. */
  readonly isInMemory?: boolean;
  /** Starts at the first byte. Whether it can be opened again depends on the source. */
  open(): BodyReader;
  /** For a body in memory: one contiguous copy. */
  toBuffer?(): Buffer;
  /** For a body in memory: copies all of it. @returns false if it is not there any more; the target is then undefined */
  copyTo?(target: Buffer, at: number): boolean;
}

/** Whether a body is a source instead of one Buffer. */
export function isSource(body: Buffer | BodySource): body is BodySource {
  return 'open' in body;
}

/** Whether a body is not in memory, so that it arrives at its own pace and may not be replayable. */
export function isStreamed(body: Buffer | BodySource): body is BodySource {
  return isSource(body) && body.isInMemory !== true;
}

export interface BodyReader {
  /**
   * The next piece; undefined at the end. One call at a time.
   * @throws GatewayError (rejects) if the rest will not come
   */
  next(): Promise<Buffer | undefined>;
  /** Abandons the rest. A pending `next` may then never settle. Idempotent. */
  cancel(): void;
  /** The pieces are no longer read, by the kernel either. Absent if the source does not need to know. Idempotent. */
  released?(): void;
}
