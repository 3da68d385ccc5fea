// What distinguishes one endpoint of the API from another for the road that they share: only shapes. The endpoints
// themselves are json-endpoints.ts; the road is pipeline.ts.
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { GatewayError } from '../../errors.ts';
import type { BodyPieces } from '../../http/pieces/body-pieces.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders } from '../../upstream/transport.ts';
import type { ChunkFacts, CompletionFacts, Usage } from '../../wire/chat-chunk.ts';
import type { CreatedObjects } from '../../wire/created-objects.ts';
import type { Edit, RequestScan, Wanted } from '../request/request-scan.ts';
import type { Estimate } from '../request/token-estimate.ts';

export interface Endpoint {
  /** As YAML calls it; several paths may share a name. */
  readonly name: EndpointName;
  /** Below the API root, here and at upstreams, without a slash in front. */
  readonly path: string;
  /** Default POST. */
  readonly method?: 'GET' | 'DELETE';
  /** Of a path that belongs to one request alone: what the client wrote behind its `?`, or nothing. */
  readonly query?: string;
  /** What an answer that is no stream is asked for as. */
  readonly accept: string;
  /** What is read of a request. */
  readonly wanted: Wanted;
  /** Streams have `stream_options.include_usage`, so that the gateway may ask for usage. */
  readonly hasUsageOption: boolean;
  /** What one request asks for. */
  readonly readFacts: (body: Buffer, scan: RequestScan) => RequestFacts;
  /**
   * Reads the frames of one stream; undefined where they are those of chat, which are read without a detour.
   * @param onMade hears of what the upstream has made, as the stream tells it
   */
  readonly frames?: (onMade?: (created: CreatedObjects) => void) => FrameReader;
  /** What the upstream has made, by a whole answer. */
  readonly createdIn?: (body: Buffer) => CreatedObjects;
  /** Requests may refer to what upstreams have made for a holder. Default false. */
  readonly namesObjects?: boolean;
  /** Its JSON answers are embeddings, which may be too large to be held. Default false. */
  readonly isEmbeddings?: boolean;
  /** What was read of a whole JSON answer, as it is meant here: one that is no answer of this endpoint is not `valid`. */
  readonly factsOf?: (facts: CompletionFacts) => CompletionFacts;
  /** What a whole answer that is an error means. Default: by the status that it names. */
  readonly judgeAnswer?: (text: string, headers: ResponseHeaders) => Failure;
  /**
   * A JSON answer as the stream that was asked for; undefined when it cannot be one. Endpoints without it have no such form.
   * @param alias JSON string token for `model`
   * @param includeUsage whether the client asked for usage in its stream
   */
  readonly asStream?: (
    body: Buffer,
    alias: Buffer | undefined,
    includeUsage: boolean,
  ) => Buffer | BodyPieces | undefined;
  /** The same for an answer of bytes, as they come. */
  readonly bytesAsStream?: () => ByteEvents;
  /** Whether an answer of this media type, to what was asked, is passed on as bytes, unread. */
  readonly isBinary?: (type: string, facts: Pick<RequestFacts, 'takesText'>) => boolean;
  /** What is read of a request that is a form; undefined where none is taken. */
  readonly form?: FormRules;
}

/** Makes the events of one answer of bytes. */
export interface ByteEvents {
  /**
   * @returns the events of the next piece; empty where it waits for more
   * @throws GatewayError upstream_invalid_response
   */
  next(piece: Buffer): Buffer;
  /** @returns the last ones, when all of it has come */
  end(): Buffer;
}

/** How an endpoint reads a form, whose fields come in any order and perhaps long after it was sent on its way. */
export interface FormRules {
  /** The model of a form that names none; undefined where it has to. */
  readonly defaultModel?: string;
  /** Names of fields, beside `model`, that gateway and upstream must not read differently, in lower case. */
  readonly fields: readonly string[];
  /** Throws a GatewayError where the value of a field cannot be read as what it has to be. */
  readonly check?: (name: string, text: string) => void;
  /** JSON is taken as well. */
  readonly isEither: boolean;
  /** What is asked for, as far as the form has come: to be read anew whenever it matters. */
  readonly readFacts: (form: FormView) => RequestFacts;
}

/** What has come of a form. */
export interface FormView {
  /** The value of a field that the endpoint wants. */
  text(name: string): string | undefined;
  /** Parts that are files. */
  readonly files: number;
  /** Of the other parts: bytes that have come. */
  readonly textBytes: number;
  /** Of the whole body: what was announced, or else what has come. */
  readonly bytes: number;
}

/** One request, as its endpoint understands it. */
export interface RequestFacts {
  readonly stream: boolean;
  readonly estimate: Estimate;
  /** Text is asked for, and not JSON. Default false. */
  readonly takesText?: boolean | undefined;
  /** What an answer counts as whose upstream does not say it, where that can be known: it is no estimate. */
  readonly usage?: Usage;
  /** It goes on when the answer has been given, and its use is told later. Default false. */
  readonly isBackground?: boolean;
  /** Tokens of output that a whole answer without usage is taken for. Default: by its bytes, which are text. */
  readonly outputs?: number | undefined;
  /**
   * What a JSON answer needs to be what was asked for, beside the model's name.
   * @throws (rejects with) GatewayError upstream_invalid_response
   */
  readonly edits?: (body: Buffer) => Promise<readonly Edit[]>;
}

/** Reads the frames of one stream in their order. */
export interface FrameReader {
  /** As `readChunk` of chat-chunk.ts: `done` is a frame after which nothing is relayed. */
  read(bytes: Buffer, start: number, end: number): ChunkFacts;
  /** Text in the output of the frame that was read last, as `textOfChunk` of chat-chunk.ts. */
  readonly text: number;
  /** The client may have all of the answer with the frames that were read, although its usage is still to come. */
  readonly mayBeLast: boolean;
  /** A frame that tells the client of an error of the gateway's own finding. */
  errorFrame(error: GatewayError): Buffer;
  /** What an error among the first frames means, when nothing was sent to the client. */
  judge(frame: Buffer, headers: ResponseHeaders): Failure;
}
