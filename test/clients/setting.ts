// What the tests of client libraries share: a gateway in front of a scripted upstream and of the built-in model, and ways
// to see what a client's call came to on both sides of it. It knows no client.
import { expect } from 'vitest';
import { type Gateway, type GatewayOptions, type LogLine, startGateway } from '../helpers/gateway.ts';
import {
  chunk,
  chunkOf,
  completion,
  contentChunk,
  frame,
  HostileUpstream,
  head,
  type RecordedRequest,
  reset,
  roleChunk,
  type Script,
  SSE_HEADERS,
  type Step,
  silence,
  standardAnswer,
  waitFor,
} from '../helpers/hostile-upstream.ts';
import { within } from '../helpers/wait.ts';

export interface Setting {
  readonly upstream: HostileUpstream;
  readonly gateway: Gateway;
  /** What a client is given, with `key`. */
  readonly baseURL: string;
  readonly key: string;
  /**
   * A model of the scripted upstream that no test has used: what the gateway learns of it when it fails (leave it alone for a
   * while, say) concerns nobody else.
   */
  troubled(): string;
  /** From now on the answer of the upstream. Returns the number that its next request will have. */
  answers(script: Script): number;
  /** Answers to the next requests, one each. Returns the number of the first of them. */
  answersOnce(...scripts: Script[]): number;
  close(): Promise<void>;
}

export const TROUBLED = Array.from({ length: 12 }, (_, index) => `troubled-${index}`);

const up = ({ baseUrl }: HostileUpstream, name: string) => ({
  base_url: baseUrl,
  api_key: `credential-of-${name}`,
});

const to = (upstream: string) => ({ targets: [{ upstream, model: 'upstream-model' }] });

/** `scripted` is the upstream's model, `echo` the built-in one, `down` is nowhere; see also `troubled()`. */
export async function startSetting(options: GatewayOptions = {}): Promise<Setting> {
  const upstream = await HostileUpstream.start();
  const gateway = await startGateway({
    ...options,
    config: {
      upstreams: {
        builtin: { builtin: 'echo' },
        up: up(upstream, 'up'),
        ...Object.fromEntries(TROUBLED.map((name) => [name, up(upstream, name)])),
        nowhere: { base_url: 'http://127.0.0.1:9/v1', api_key: 'credential-of-nowhere' },
      },
      models: {
        scripted: to('up'),
        ...Object.fromEntries(TROUBLED.map((name) => [name, to(name)])),
        echo: { targets: [{ upstream: 'builtin', model: 'echo' }] },
        down: { targets: [{ upstream: 'nowhere', model: 'x' }] },
      },
      ...options.config,
    },
  }).catch(async (error) => {
    await upstream.close();
    throw error;
  });
  const unused = [...TROUBLED];
  const close = async (): Promise<void> => {
    await gateway.close();
    await upstream.close();
  };
  return {
    upstream,
    gateway,
    baseURL: `${gateway.url}/v1`,
    key: await gateway.key(),
    troubled: () => {
      const name = unused.shift();
      if (name === undefined) throw new Error('TROUBLED has too few names');
      return name;
    },
    answers: (script) => {
      upstream.always(script);
      return upstream.requests.length;
    },
    answersOnce: (...scripts) => {
      upstream.always(standardAnswer);
      upstream.next(...scripts);
      return upstream.requests.length;
    },
    close,
  };
}

/** The access log's line of the request with this id, as a client read it from `x-request-id`. */
export function accessOf({ gateway }: Setting, id: string | null | undefined): Promise<LogLine> {
  if (typeof id !== 'string' || id === '') throw new Error('the answer has no request id');
  return gateway.logLine((line) => line['msg'] === 'request' && line['request_id'] === id);
}

/** How many requests the gateway has answered with this status, up to the one with this id: each try of a client is one. */
export async function triesUntil(setting: Setting, id: string | undefined, status: number): Promise<number> {
  await accessOf(setting, id);
  return setting.gateway.logs.filter((line) => line['msg'] === 'request' && line['status'] === status).length;
}

/**
 * The client has gone: the request to the upstream ends, by the gateway's doing, while its script would go on for ever, and
 * the log says so.
 */
export async function expectGivenUp(setting: Setting, index: number): Promise<RecordedRequest> {
  const request = await setting.upstream.request(index);
  expect(await within(request.closed, 'the end of the upstream connection')).toMatchObject({ by: 'peer' });
  const line = await accessOf(setting, request.header('x-request-id'));
  expect(line).toMatchObject({ status: 499, outcome: 'client_closed', attempts: 1 });
  return request;
}

/** A stream that says `Hello` and then nothing. */
export const helloAndSilence = (): Step[] => [
  head(200, SSE_HEADERS),
  chunk(frame(roleChunk())),
  chunk(frame(contentChunk('Hello'))),
  silence(),
];

/**
 * Each piece, and its end after the last, is sent when the client has read the one before it: so what is read at the end
 * does not depend on who is quicker.
 * @param isRead whether the client has read this text, all in all
 */
export function inStep(pieces: readonly string[], isRead: (text: string) => boolean, ...end: Step[]): Step[] {
  let all = '';
  const steps: Step[] = [head(200, SSE_HEADERS), chunk(frame(roleChunk()))];
  for (const piece of pieces) {
    all += piece;
    const text = all;
    steps.push(
      chunk(frame(contentChunk(piece))),
      waitFor(() => isRead(text)),
    );
  }
  return [...steps, ...end];
}

/** How a stream may break off behind the text that it began with. */
export const BREAKS: readonly (readonly [how: string, end: readonly Step[]])[] = [
  ['the connection is reset', [reset()]],
  ['the connection is closed in the middle of a frame', [chunk('data: {"choi'), (c) => c.close()]],
  ['it ends cleanly, without a finish reason', [(c) => c.lastChunk()]],
];

/** A chunk whose delta is what reasoning models add. */
export const reasoningChunk = (text: string): object => chunkOf({ content: null, reasoning_content: text });

export interface Called {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** A completion, as with `overrides` in its message. */
export function completionWith(message: object, finishReason = 'stop'): object {
  const whole = completion({ finishReason });
  return {
    ...whole,
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: null, refusal: null, ...message },
        logprobs: null,
        finish_reason: finishReason,
      },
    ],
  };
}

/** A completion that calls tools. */
export function toolCompletion(...calls: readonly Called[]): object {
  const tool_calls = calls.map(({ id, name, arguments: text }) => ({
    id,
    type: 'function',
    function: { name, arguments: text },
  }));
  return completionWith({ tool_calls }, 'tool_calls');
}

/** The JSON Schema of the tool that the tests offer. */
export const CITY_SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const;

/** What a promise rejects with. */
export async function rejection(promise: PromiseLike<unknown>): Promise<unknown> {
  return await Promise.resolve(promise).then(
    () => {
      throw new Error('it did not fail');
    },
    (error: unknown) => error,
  );
}
