// The interface of an API endpoint to the shared pipeline; types only. json-endpoints.ts and form-endpoints.ts have the endpoints,
// pipeline.ts the pipeline.
import type { EndpointName } from '../../config/schema/endpoint-names.ts';
import type { GatewayError } from '../../errors.ts';
import type { BodyPieces } from '../../http/pieces/body-pieces.ts';
import type { Failure } from '../../upstream/error-outcome.ts';
import type { ResponseHeaders, Transport } from '../../upstream/transport.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { ErrorSign } from '../../wire/answer-shape.ts';
import type { ChunkFacts, CompletionFacts } from '../../wire/chat-chunk.ts';
import type { CreatedObjects } from '../../wire/created-objects.ts';
import type { Quantities, Usage } from '../../wire/token-usage.ts';
import type { RequestScan, Wanted } from '../request/request-members.ts';
import type { Edit } from '../request/request-scan.ts';
import type { Estimate } from '../request/token-estimate.ts';
import type { Route, Target } from '../routes/route-table.ts';

/** Where a response was made. */
export interface ResponseOrigin {
  /** Name of the upstream. */
  readonly upstream: string;
  /** The model's name there. */
  readonly upstreamModel: string;
}

/** What the requests share that come as events of one WebSocket. */
export interface SocketSession {
  /** @returns the route to the targets that can be asked @throws GatewayError websocket_not_offered */
  usable(route: Route): Route;
  /** The connection to an upstream; undefined where it is asked as for any request. */
  transportOf(upstream: Upstream): Pick<Transport, 'send'> | undefined;
  /** A response was made, stored or not. */
  made(id: string, target: Target): void;
  /** A response that was made here. */
  find(id: string): ResponseOrigin | undefined;
}

export interface Endpoint {
  /** Set for requests that are events of a WebSocket. */
  readonly session?: SocketSession;
  /** Its configuration name; several paths may share one. */
  readonly name: EndpointName;
  /** Relative to the API root, here and at upstreams. With a leading slash: at upstreams beside the `/v1` of their base URL. */
  readonly path: string;
  /** Its paths here. Default: `/v1/` and `path`. */
  readonly routes?: readonly string[];
  /** Default POST. */
  readonly method?: 'GET' | 'DELETE';
  /** The client's query string, for paths that serve a single request. */
  readonly query?: string;
  /** The client's query string is forwarded, or these of its parameters. Default false. */
  readonly keepsQuery?: boolean | readonly string[];
  /** The `accept` header of requests without a stream. Default: JSON. */
  readonly accept?: string;
  /** The members read of a request. */
  readonly wanted: Wanted;
  /** Streams support `stream_options.include_usage`, so the gateway may request usage. Default false. */
  readonly hasUsageOption?: boolean;
  /** Reads the facts of one request. */
  readonly readFacts: (body: Buffer, scan: RequestScan) => RequestFacts;
  /**
   * A reader for the frames of one stream; undefined for chat frames, which are read directly.
   * @param onCreated called for each object that the upstream reports as created
   */
  readonly frames?: (onCreated?: (created: CreatedObjects) => void) => FrameReader;
  /** The objects that a complete answer reports as created. */
  readonly createdIn?: (body: Buffer) => CreatedObjects;
  /** Models that a request names beside its own, as the upstream calls them. */
  readonly otherModels?: (body: Buffer, scan: RequestScan) => readonly string[];
  /** Requests may refer to objects that upstreams created for a holder. Default false. */
  readonly namesObjects?: boolean;
  /** Its JSON answers are embeddings, which may be too large to buffer. Default false. */
  readonly isEmbeddings?: boolean;
  /** What a complete answer is measured by, beside tokens: its images, or the duration of the sound that it tells. */
  readonly measures?: 'images' | 'sound';
  /** Adjusts the facts of a complete JSON answer: clears `valid` where it is not an answer of this endpoint. */
  readonly factsOf?: (facts: CompletionFacts) => CompletionFacts;
  /** Classifies a complete answer that is an error. Default: by the status it names. */
  readonly judgeAnswer?: (text: string, headers: ResponseHeaders) => Failure;
  /**
   * Converts a JSON answer to the requested stream; returns undefined when it cannot. Absent where there is no such form.
   * @param alias JSON string token for `model`
   * @param includeUsage whether the client requested usage in its stream
   */
  readonly asStream?: (
    body: Buffer,
    alias: Buffer | undefined,
    includeUsage: boolean,
  ) => Buffer | BodyPieces | undefined;
  /** The same for byte answers, incrementally. */
  readonly bytesAsStream?: () => ByteEvents;
  /** Whether an answer of this media type is relayed as unread bytes. */
  readonly isBinary?: (type: string, facts: Pick<RequestFacts, 'takesText'>) => boolean;
  /** How forms are read; undefined where none is accepted. */
  readonly form?: FormRules;
}

/** Builds the events of one byte answer. */
export interface ByteEvents {
  /** @returns the events of the next piece; may be empty @throws GatewayError upstream_invalid_response */
  next(piece: Buffer): Buffer;
  /** @returns the last events; call after the last piece */
  end(): Buffer;
}

/** How an endpoint reads a form, whose fields arrive in any order, possibly after forwarding has started. */
export interface FormRules {
  /** The model of a form without one; undefined where it is required, empty where the path names it. */
  readonly defaultModel?: string;
  /** Fields besides `model` that gateway and upstream must interpret alike, in lower case. */
  readonly fields: readonly string[];
  /** Validates a field's value. @throws GatewayError invalid_value or invalid_type */
  readonly check?: (name: string, text: string) => void;
  /** JSON is accepted as well. Default false. */
  readonly isEither?: boolean;
  /** The facts of the form so far: read them again whenever they matter. */
  readonly readFacts: (form: FormView) => RequestFacts;
}

/** The part of a form that has arrived. */
export interface FormView {
  /** The value of a wanted field. */
  text(name: string): string | undefined;
  /** Number of file parts. */
  readonly files: number;
  /** Bytes received of the other parts. */
  readonly textBytes: number;
  /** Bytes of the whole body: announced, or else received. */
  readonly bytes: number;
}

/** The facts of one request, as read by its endpoint. */
export interface RequestFacts {
  readonly stream: boolean;
  readonly estimate: Estimate;
  /** The client requested text, not JSON. Default false. */
  readonly takesText?: boolean | undefined;
  /** The exact usage of an answer whose upstream reports none, where it can be known. */
  readonly usage?: Usage;
  /** It continues after the answer, and its usage is reported later. Default false. */
  readonly isBackground?: boolean;
  /** What has a price beside tokens. Default: one request. */
  readonly quantities?: Quantities | undefined;
  /** Output tokens assumed for a complete answer without usage. Default: from its bytes, as text. */
  readonly outputs?: number | undefined;
  /**
   * Edits that turn a JSON answer into the requested form, besides the model name.
   * @throws (rejects with) GatewayError upstream_invalid_response
   */
  readonly edits?: (body: Buffer) => Promise<readonly Edit[]>;
}

/** Reads the frames of one stream in order. */
export interface FrameReader {
  /** As `readChunk` of chat-chunk.ts: nothing is relayed after a `done` frame. */
  read(bytes: Buffer, start: number, end: number): ChunkFacts;
  /** Bytes of output text in the last frame, as `textOfChunk` of chat-chunk.ts. */
  readonly text: number;
  /** The client may have the whole answer with the frames so far, although usage is still to come. */
  readonly mayBeLast: boolean;
  readonly errorSign: ErrorSign;
  /** A frame that reports an error of the gateway. @param requestId of the client's request */
  errorFrame(error: GatewayError, requestId: string): Buffer;
  /** Classifies an error frame that comes before anything was sent to the client. */
  judge(frame: Buffer, headers: ResponseHeaders): Failure;
}
