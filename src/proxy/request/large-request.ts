// A request whose body is large: the memory that it stands in, and what is found in it while it comes, so that nothing is left
// to be done with all of it at once. Small bodies are scanned when they are whole.

import type { BufferPool } from '../../http/pieces/buffer-pool.ts';
import { BodyMemory } from '../../http/pieces/large-body-memory.ts';
import { Utf8Walk } from '../../wire/json-text.ts';
import { JsonWalk } from '../../wire/json-walk.ts';
import type { WatchedMembers } from '../routes/watched-members.ts';
import { RequestReader } from './request-reader.ts';
import { type RequestScan, scanRequest, type Wanted } from './request-scan.ts';

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

  /**
   * @param body all of it
   * @throws GatewayError as `scanRequest`
   */
  scan(body: Buffer): RequestScan {
    return this.#scan === undefined ? scanRequest(body, this.#wanted, this.#watched) : this.#scan.end(body);
  }
}

/** `scanRequest`, as a body comes. */
export class LargeScan {
  readonly #reader: RequestReader;
  readonly #walk: JsonWalk;
  readonly #text = new Utf8Walk();
  /** It is no text; then nothing else of it is looked at. */
  #fault: unknown;

  constructor(wanted: Wanted, watched?: WatchedMembers) {
    this.#reader = new RequestReader(wanted, watched);
    this.#walk = new JsonWalk(this.#reader);
  }

  /**
   * Reads on, and throws nothing.
   * @param bytes the body from its beginning
   * @param size so much of it has come: at least as much as before
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
