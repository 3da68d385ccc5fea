// What the programs use of packages that only `npm/package.json` has. Those that the project itself tests with bring their
// own types.

declare module '@ai-sdk/openai' {
  import type { EmbeddingModel, ImageModel, LanguageModel, SpeechModel, TranscriptionModel } from 'ai';

  export interface OpenAIProvider {
    chat(model: string): LanguageModel;
    responses(model: string): LanguageModel;
    completion(model: string): LanguageModel;
    textEmbeddingModel(model: string): EmbeddingModel;
    image(model: string): ImageModel;
    speech(model: string): SpeechModel;
    transcription(model: string): TranscriptionModel;
  }

  export function createOpenAI(settings: {
    readonly baseURL: string;
    readonly apiKey: string;
  }): OpenAIProvider;
}

declare module '@openai/agents' {
  import type OpenAI from 'openai';
  import type { z } from 'zod';

  export interface RunResult {
    readonly finalOutput: unknown;
    readonly history: unknown;
    readonly newItems: readonly { readonly rawItem?: unknown }[];
    readonly rawResponses: unknown;
    readonly usage?: unknown;
  }

  export interface StreamedRunResult extends RunResult, AsyncIterable<unknown> {
    readonly completed: Promise<void>;
  }

  export class Agent {
    constructor(settings: {
      readonly name: string;
      readonly instructions?: string;
      readonly model: string;
      readonly tools?: readonly unknown[];
      readonly outputType?: z.ZodType;
      readonly modelSettings?: object;
    });
  }

  export function run(agent: Agent, input: string): Promise<RunResult>;
  export function run(agent: Agent, input: string, options: { stream: true }): Promise<StreamedRunResult>;
  export function tool<T extends z.ZodType>(settings: {
    readonly name: string;
    readonly description: string;
    readonly parameters: T;
    execute(input: z.infer<T>): Promise<string>;
  }): unknown;
  export function setDefaultOpenAIClient(client: OpenAI): void;
  export function setOpenAIAPI(api: 'chat_completions' | 'responses'): void;
  export function setTracingDisabled(disabled: boolean): void;
}

declare module '@anthropic-ai/sdk' {
  interface Message {
    readonly content: readonly { readonly type: string; readonly id?: string }[];
  }
  interface Events extends AsyncIterable<{ readonly type: string }> {
    readonly controller: AbortController;
  }
  interface HelpedStream {
    on(event: 'text', listener: (text: string) => void): unknown;
    finalMessage(): Promise<Message>;
  }
  interface Answered extends Promise<Message> {
    withResponse(): Promise<{
      readonly data: Message;
      readonly response: Response;
      readonly request_id: string | null;
    }>;
  }

  /** The part that the programs use. */
  export default class Anthropic {
    constructor(settings: object);
    withOptions(settings: object): Anthropic;
    readonly messages: {
      create(body: object & { stream: true }): Promise<Events>;
      create(body: object): Answered;
      stream(body: object): HelpedStream;
      countTokens(body: object): Promise<unknown>;
    };
    readonly beta: { readonly messages: { create(body: object): Promise<unknown> } };
    readonly models: {
      list(query: object): AsyncIterable<unknown>;
      retrieve(id: string): Promise<unknown>;
    };
    static APIError: new () => Error & {
      readonly status: unknown;
      readonly type: unknown;
      readonly error: unknown;
      readonly requestID: unknown;
    };
  }
}

declare module 'cohere-ai' {
  interface Options {
    readonly token: string;
    readonly environment: string;
  }
  interface Rerank {
    readonly model: string;
    readonly query: string;
    readonly documents: readonly unknown[];
    readonly returnDocuments?: boolean;
  }
  interface Answering extends Promise<unknown> {
    withRawResponse(): Promise<{ readonly data: unknown; readonly rawResponse: Response }>;
  }

  export class CohereClient {
    constructor(options: Options);
    rerank(request: Rerank, options?: { readonly maxRetries: number }): Answering;
  }
  export class CohereClientV2 extends CohereClient {}
}
