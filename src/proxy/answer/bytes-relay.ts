// The relay of a byte answer (sound, plain text): bytes pass unread, and only the framing marks the end, so a broken answer ends without
// its final chunk. If a stream was requested, the bytes go out as events.
import type { GatewayError } from '../../errors.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import type { ByteEvents } from '../contracts/endpoint.ts';
import type { AttemptResult, Receiver, RelayRequest, Source } from '../contracts/receiver.ts';
import { tokensOf } from '../request/token-estimate.ts';
import { readUsable } from './error-reader.ts';
import { ClientStream } from './stream/client-stream.ts';

export class BytesRelay implements Receiver {
  readonly #request: RelayRequest;
  readonly #source: Source;
  readonly #client: ClientStream;
  readonly #events: ByteEvents | undefined;
  #size = 0;

  /** @param type content type of the answer; its media type is on the endpoint's allow-list */
  constructor(request: RelayRequest, type: string, headers: ResponseHeaders, source: Source) {
    this.#request = request;
    this.#source = source;
    this.#events = request.facts.stream ? request.endpoint.bytesAsStream?.() : undefined;
    const sent = this.#events === undefined ? type : undefined;
    this.#client = new ClientStream(request, headers, source, sent);
  }

  data(chunk: Buffer): void {
    const client = this.#client;
    if (client.isOver || chunk.length === 0) return;
    const events = this.#events;
    const bytes = events === undefined ? chunk : readUsable(this.#source, () => events.next(chunk));
    if (bytes === undefined) return;
    this.#size += chunk.length;
    const { exchange } = this.#request;
    exchange.markFirstOutput();
    if (bytes.length > 0) client.pass(bytes);
    this.#source.progress();
    // The first byte commits the response.
    client.open();
  }

  end(): void {
    const client = this.#client;
    if (client.isOver) return;
    // The transcript of silence is empty.
    if (!client.isOpen && this.#request.facts.takesText === true) client.open();
    if (!client.isOpen) this.#source.unusable('an empty answer');
    else {
      if (this.#events !== undefined) client.pass(this.#events.end());
      client.end();
      this.#source.finish({ kind: 'answered', outcome: 'ok' });
    }
  }

  broken(error: GatewayError): AttemptResult | undefined {
    const client = this.#client;
    if (!client.isOpen) {
      client.drop();
      return undefined;
    }
    if (error.code === 'client_closed') client.drop();
    else if (!client.isOver) {
      const { endpoint, exchange } = this.#request;
      client.cut(error, this.#events && endpoint.frames?.().errorFrame(error, exchange.id));
    }
    return { kind: 'answered', outcome: error.code };
  }

  dispose(): void {
    this.#client.dispose();
    const { takesText, usage = null } = this.#request.facts;
    if (this.#client.isOpen) this.#source.used(usage, takesText === true ? tokensOf(this.#size) : 0);
  }
}
