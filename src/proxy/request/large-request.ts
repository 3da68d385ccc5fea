// A large request body: its memory, and its facts as they are parsed while it arrives, so that no work on the whole body remains.
// Small bodies are scanned when they are complete.
import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import { BodyMemory } from '../../http/pieces/large-body-memory.ts';
import { Utf8Walk } from '../../wire/json/json-text.ts';
import { JsonWalk } from '../../wire/json/json-walk.ts';
import type { WatchedMembers } from '../routes/watched-members.ts';
import type { RequestScan, Wanted } from './request-members.ts';
import { RequestReader } from './request-reader.ts';
import { scanRequest } from './request-scan.ts';

export class LargeRequest extends BodyMemory {
  readonly #wanted: Wanted;
  readonly #watched: WatchedMembers | undefined;
  #scan: LargeScan | undefined;

  /** @param admit see `LargeBody` */
  constructor(wanted: Wanted, buffers: BufferPool, watched?: WatchedMembers, admit?: () => Promise<void>) {
    super(buffers, admit);
    this.#wanted = wanted;
    this.#watched = watched;
  }

  protected override advance(bytes: Buffer, size: number): void {
    this.#scan ??= new LargeScan(this.#wanted, this.#watched);
    this.#scan.advance(bytes, size);
  }

  /** @param body the complete body @throws GatewayError as `scanRequest` */
  scan(body: Buffer): RequestScan {
    return this.#scan === undefined ? scanRequest(body, this.#wanted) : this.#scan.end(body);
  }
}

/** Incremental `scanRequest`. */
export class LargeScan {
  readonly #reader: RequestReader;
  readonly #walk: JsonWalk;
  readonly #text = new Utf8Walk();
  /** The body is not valid text; nothing else of it is read. */
  #fault: unknown;

  constructor(wanted: Wanted, watched?: WatchedMembers) {
    this.#reader = new RequestReader(wanted, watched);
    this.#walk = new JsonWalk(this.#reader);
  }

  /**
   * Parses further. Throws nothing; `end` does.
   * @param bytes the body from its beginning
   * @param size bytes that have arrived; never less than before
   */
  advance(bytes: Buffer, size: number): void {
    this.#advance(bytes, size, false);
  }

  /** @throws GatewayError as `scanRequest` */
  end(body: Buffer): RequestScan {
    this.#advance(body, body.length, true);
    if (this.#fault !== undefined) throw this.#fault;
    return this.#reader.result(this.#walk);
  }

  #advance(bytes: Buffer, size: number, isLast: boolean): void {
    if (this.#fault !== undefined) return;
    try {
      this.#text.advance(bytes, size, isLast);
      this.#reader.body = bytes;
      this.#walk.advance(bytes, size, isLast);
    } catch (error) {
      this.#fault = error;
    }
  }
}
