// Error frames of a stream: what they mean for the attempt, and how the client gets them.
import { errorBody, GatewayError } from '../../../errors.ts';
import { type Failure, judgeErrorObject } from '../../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../../upstream/transport.ts';
import { textOfBareError } from '../../../wire/answer-shape.ts';
import type { FrameReader } from '../../contracts/endpoint.ts';
import type { AttemptResult, RelayRequest, Source } from '../../contracts/receiver.ts';
import { dataText } from './frame-edits.ts';

interface StreamErrorsOptions {
  readonly request: RelayRequest;
  readonly headers: ResponseHeaders;
  readonly source: Source;
  /** For endpoints with their own frames. */
  readonly reader: FrameReader | undefined;
}

export class StreamErrors {
  readonly #options: StreamErrorsOptions;
  #relayed: GatewayError | undefined;

  constructor(options: StreamErrorsOptions) {
    this.#options = options;
  }

  /** The upstream's own error frame, if one was relayed. */
  get relayed(): GatewayError | undefined {
    return this.#relayed;
  }

  /** An error frame is relayed after output: the client's SDK raises it. */
  markRelayed(): void {
    const cause = 'an error frame in the stream';
    this.#relayed ??= new GatewayError('upstream_error', undefined, { cause });
  }

  /** The failure of an attempt whose whole answer is this error frame. */
  judge(frame: Buffer): Failure {
    const { reader, headers } = this.#options;
    return reader?.judge(frame, headers) ?? judgeErrorObject(dataText(frame), headers);
  }

  /**
   * Replaces an error frame that quotes a credential, that has no data, or that SDKs would not recognize (no `error` wrapper; keeps the
   * upstream's text).
   * @returns undefined to leave it unchanged
   */
  replacementOf(frame: Buffer): Buffer | undefined {
    if (this.#relayed === undefined) return undefined;
    const { source, reader } = this.#options;
    const text = dataText(frame);
    if (text.trim() === '' || source.quotesCredential?.(frame) === true) return this.frameOf(this.#relayed);
    const message = textOfBareError(frame, text, reader?.errorSign ?? 'wrapper');
    return message === undefined ? undefined : this.frameOf(new GatewayError('upstream_error', message));
  }

  frameOf(error: GatewayError): Buffer {
    const { reader, request } = this.#options;
    return reader?.errorFrame(error, request.exchange.id) ?? Buffer.from(`data: ${errorBody(error)}\n\n`);
  }

  /** The result of a stream that reached its end. */
  answered(): AttemptResult {
    const error = this.#relayed;
    if (error !== undefined) this.#options.request.exchange.error = error;
    return { kind: 'answered', outcome: error?.code ?? 'ok' };
  }
}
