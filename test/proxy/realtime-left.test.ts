// What a holder is charged who leaves a realtime session while an answer is under way: what the upstream reports within a moment,
// or else its text by bytes, its sound by duration, and what was sent for it.
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket as Client } from 'ws';
import { BYTES_PER_TOKEN } from '../../src/proxy/request/token-estimate.ts';
import { SessionUsage, type SessionUse } from '../../src/proxy/reservation/realtime-usage.ts';
import { MAX_TEXT } from '../../src/realtime/websocket/websocket-frames.ts';
import { NO_DETAILS } from '../../src/wire/token-usage.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import { RealtimeUpstream, responseDone, type UpstreamSession } from '../helpers/realtime-upstream.ts';
import { until, within } from '../helpers/wait.ts';

const WORDS = 'word '.repeat(6_000);
const event = (type: string, more: object = {}) => JSON.stringify({ type, ...more });
const said = (text: string) =>
  event('conversation.item.create', { item: { type: 'message', content: [{ type: 'input_text', text }] } });

/** Base64 of so many seconds of PCM as OpenAI has it. */
const sound = (seconds: number) => 'A'.repeat(seconds * 64_000);

describe('a session whose client disconnects', () => {
  let upstream: RealtimeUpstream;
  let gateway: Gateway;

  beforeAll(async () => {
    upstream = await RealtimeUpstream.start();
    gateway = await startGateway({
      upstreams: { up: upstream.baseUrl },
      config: { tiers: { Pro: { concurrency: 1, tokens_per_minute: 10_000_000 } } },
    });
  });
  afterAll(async () => {
    await gateway?.close();
    await upstream?.[Symbol.asyncDispose]();
  });

  interface Opened {
    readonly client: Client;
    /** The connection below it. */
    readonly socket: Socket;
    readonly session: UpstreamSession;
    readonly key: string;
    readonly read: string[];
  }

  async function open(): Promise<Opened> {
    const key = await gateway.issueKey('Pro');
    const next = upstream.next();
    const url = `${gateway.url.replace('http', 'ws')}/v1/realtime?model=test-model`;
    const client = new Client(url, ['realtime'], { headers: { authorization: `Bearer ${key}` } });
    const read: string[] = [];
    client.on('message', (data) => read.push(String(data)));
    client.on('error', () => undefined);
    const [{ socket }] = await within(once(client, 'upgrade'), 'the session to open');
    return { client, socket, session: await next, key, read };
  }

  async function totalsOf(key: string): Promise<Record<string, number>> {
    await until(
      async () => (await gateway.metric('tollgate_realtime_sessions')) === 0,
      'the end of the session',
    );
    const answer = await fetch(`${gateway.url}/admin/usage`, { headers: { authorization: `Bearer ${key}` } });
    return Object(Reflect.get(Object(await answer.json()), 'totals'));
  }

  /** The upstream has read so many messages of the client's, and the client so many of the upstream's. */
  const arrived = (session: UpstreamSession, sent: number, read: string[], got: number) =>
    until(() => session.messages.length >= sent && read.length >= got, 'what was sent');

  test.each([
    ['with a Close', ({ client }: Opened) => client.close(1000)],
    ['without one', ({ client }: Opened) => client.terminate()],
    ['by the end of what it sends', ({ socket }: Opened) => socket.end()],
  ])('%s after the last piece of an answer counts the usage that is reported later', async (_, leave) => {
    const opened = await open();
    const { client, session, key, read } = opened;
    client.send(event('response.create'));
    session.socket.send(event('response.created', { response: { id: 'r' } }));
    session.socket.send(event('response.output_text.delta', { delta: WORDS }));
    await arrived(session, 1, read, 2);
    leave(opened);
    await until(
      async () => (await gateway.metric('tollgate_usage_reads')) === 1,
      'the upstream to be read on',
    );
    // The slot of the holder is taken.
    const refused = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
    expect(refused.headers.get('x-ratelimit-limit-tokens')).toBe('10000000');
    expect(await gateway.metric('tollgate_limit_leases')).toBe(1);
    session.socket.send(responseDone(90_000, 8_000));
    await within(session.closed, 'the end at the upstream');
    expect(await totalsOf(key)).toMatchObject({
      prompt_tokens: 90_000,
      completion_tokens: 8_000,
      estimated: 0,
    });
  });

  test('while an answer is cancelled counts its reported usage', async () => {
    const { client, session, key, read } = await open();
    client.send(event('response.create'));
    session.socket.send(event('response.created', { response: { id: 'r' } }));
    session.socket.send(event('response.output_text.delta', { delta: 'one' }));
    await arrived(session, 1, read, 2);
    client.send(event('response.cancel'));
    client.close();
    await until(() => session.messages.length === 2, 'the cancellation');
    session.socket.send(responseDone(700, 77));
    expect(await totalsOf(key)).toMatchObject({ prompt_tokens: 700, completion_tokens: 77 });
  });

  test('without a later report counts the text of its answer and of its input', async () => {
    const { client, session, key, read } = await open();
    client.send(said(WORDS.repeat(6)));
    client.send(event('response.create'));
    session.socket.send(event('response.created', { response: { id: 'r' } }));
    for (const delta of [WORDS, WORDS, 'end']) {
      session.socket.send(event('response.output_text.delta', { delta }));
    }
    await arrived(session, 2, read, 4);
    client.terminate();
    const totals = await totalsOf(key);
    expect(totals['prompt_tokens']).toBeGreaterThanOrEqual((6 * WORDS.length) / BYTES_PER_TOKEN);
    expect(totals['completion_tokens']).toBeGreaterThanOrEqual((2 * WORDS.length) / BYTES_PER_TOKEN);
    expect(totals).toMatchObject({ requests: 1, estimated: 1 });
  });

  test('because its upstream broke off during an answer waits for no usage', async () => {
    const { client, session, key, read } = await open();
    client.send(event('response.create'));
    session.socket.send(event('response.created', { response: { id: 'r' } }));
    session.socket.send(event('response.output_text.delta', { delta: WORDS }));
    await arrived(session, 1, read, 2);
    const reads = await gateway.metric('tollgate_usage_reads_total{result="missing"}');
    const closed = once(client, 'close');
    session.raw.destroy();
    await within(closed, 'the end of the session');
    expect(await totalsOf(key)).toMatchObject({ requests: 1, estimated: 1 });
    expect(await gateway.metric('tollgate_usage_reads_total{result="missing"}')).toBe(reads);
  });

  test('between two answers counts nothing more, and closes the upstream at once', async () => {
    const { client, session, key, read } = await open();
    client.send(event('response.create'));
    session.socket.send(event('response.created', { response: { id: 'r' } }));
    session.socket.send(responseDone(5, 6));
    client.send(event('input_audio_buffer.append', { audio: sound(10) }));
    await arrived(session, 2, read, 2);
    const reads = await gateway.metric('tollgate_usage_reads_total{result="missing"}');
    client.terminate();
    await within(session.closed, 'the end at the upstream');
    expect(await totalsOf(key)).toMatchObject({ prompt_tokens: 5, completion_tokens: 6, estimated: 0 });
    expect(await gateway.metric('tollgate_usage_reads_total{result="missing"}')).toBe(reads);
  });
});

describe('the usage of a session', () => {
  function reader() {
    const uses: SessionUse[] = [];
    const usage = new SessionUsage((use) => uses.push(use));
    return {
      uses,
      usage,
      hear: (text: string) => usage.read(Buffer.from(text)),
      send: (text: string) => usage.readInput(Buffer.from(text)),
    };
  }

  test('counts sound by its duration, in either format', () => {
    const { usage, uses, hear, send } = reader();
    send(event('input_audio_buffer.append', { audio: sound(10) }));
    hear(event('response.created'));
    hear(event('response.output_audio.delta', { delta: sound(5) }));
    usage.end();
    const details = { ...NO_DETAILS, audioInput: 100, audioOutput: 100 };
    expect(uses).toEqual([
      { tokens: { prompt: 100, completion: 100, cached: 0, reasoning: 0, details }, isEstimated: true },
    ]);
    hear(
      event('session.updated', {
        session: { input_audio_format: 'g711_ulaw', output_audio_format: 'pcm16' },
      }),
    );
    send(event('input_audio_buffer.append', { audio: 'A'.repeat(10 * 8_000 * (4 / 3)) }));
    hear(event('input_audio_buffer.committed'));
    usage.end();
    expect(uses[1]?.tokens.prompt).toBeGreaterThanOrEqual(99);
    const type = 'audio/pcmu';
    hear(
      event('session.updated', {
        session: { audio: { input: { format: { type } }, output: { format: { type } } } },
      }),
    );
    hear(event('response.created'));
    hear(event('response.output_audio.delta', { delta: 'A'.repeat(10 * 8_000 * (4 / 3)) }));
    usage.end();
    expect(uses[2]?.tokens.completion).toBeGreaterThanOrEqual(199);
  });

  test('counts text as no sound, and at least a token for each event', () => {
    const { usage, uses, hear } = reader();
    expect(usage.awaitsUsage).toBe(false);
    for (const _answer of [1, 2]) hear(event('response.created'));
    for (const delta of ['a', 'b', 'c']) hear(event('response.output_text.delta', { delta }));
    hear(event('conversation.item.input_audio_transcription.delta', { delta: 'd' }));
    usage.end();
    expect(usage.awaitsUsage).toBe(false);
    usage.end();
    expect(uses).toEqual([
      { tokens: { prompt: 0, completion: 4, cached: 0, reasoning: 0 }, isEstimated: true },
    ]);
  });

  test.each([
    [
      'reported as nothing',
      responseDone(0, 0),
      [{ tokens: { prompt: 0, completion: 0 }, isEstimated: false }],
    ],
    ['that failed before any output', event('response.done', { response: { status: 'failed' } }), []],
  ])('of an answer %s', (_what, done, expected) => {
    const { uses, hear, send } = reader();
    send(said(WORDS));
    hear(event('response.created'));
    hear(done);
    expect(uses).toMatchObject(expected);
    expect(uses).toHaveLength(expected.length);
  });

  test('is nothing for an answer that was cancelled before anything was said', () => {
    const { uses, hear } = reader();
    hear(event('response.created'));
    hear(event('response.done', { response: { status: 'cancelled' } }));
    expect(uses).toEqual([]);
  });

  test('does not lose an answer that ends without a report, or with zeros', () => {
    for (const end of [
      event('response.done', { response: { status: 'cancelled', usage: null } }),
      responseDone(0, 0),
      event('response.done', { response: {} }),
    ]) {
      const { uses, hear } = reader();
      hear(event('response.created'));
      hear(event('response.output_text.delta', { delta: WORDS }));
      hear(end);
      expect(uses).toMatchObject([
        { tokens: { completion: WORDS.length / BYTES_PER_TOKEN }, isEstimated: true },
      ]);
    }
  });

  test('does not lose an answer whose last event is too long to be parsed', () => {
    const { usage, uses, hear } = reader();
    hear(event('response.created'));
    hear(event('response.output_text.delta', { delta: WORDS }));
    usage.readLong(MAX_TEXT + 1, Buffer.from('{"event_id":"e","type":"response.done","response":{"id":'));
    hear(event('response.created'));
    hear(responseDone(3, 4));
    expect(uses).toMatchObject([
      { tokens: { completion: WORDS.length / BYTES_PER_TOKEN }, isEstimated: true },
      { tokens: { prompt: 3, completion: 4 }, isEstimated: false },
    ]);
  });

  test('counts events that are too long to be parsed by their bytes', () => {
    const { usage, uses } = reader();
    usage.readLongInput(
      2_000_000,
      Buffer.from('{"type":"conversation.item.create","item":{"content":[{"type":"input_text"'),
    );
    usage.readInput(Buffer.from(event('response.create')));
    usage.readLong(2_000_000, Buffer.from('{"type":"response.output_text.delta","delta":"'));
    usage.end();
    expect(uses).toMatchObject([{ tokens: { prompt: 500_000, completion: 500_000 } }]);
  });

  test('counts the conversation as input of each answer', () => {
    const { usage, uses, hear, send } = reader();
    hear(event('response.created'));
    hear(responseDone(900, 100));
    send(event('response.create'));
    usage.end();
    usage.end();
    expect(uses).toMatchObject([{ isEstimated: false }, { tokens: { prompt: 1_000, cached: 1_000 } }]);
  });

  test('counts input during an answer for the next one', () => {
    const { usage, uses, hear, send } = reader();
    hear(event('response.created'));
    send(said(WORDS));
    hear(responseDone(1, 1));
    send(event('response.create'));
    usage.end();
    expect(uses[1]?.tokens.prompt).toBeGreaterThanOrEqual(WORDS.length / BYTES_PER_TOKEN);
    expect(uses[1]?.tokens.prompt).toBeLessThan(WORDS.length / 2);
  });

  describe('of a session that transcribes', () => {
    const COMPLETED = 'conversation.item.input_audio_transcription.completed';
    const begun = (isOld = false) => {
      const it = reader();
      if (isOld) it.hear(event('transcription_session.updated', { session: {} }));
      else it.hear(event('session.updated', { session: { type: 'transcription' } }));
      return it;
    };
    const speak = ({ hear, send }: ReturnType<typeof reader>, seconds: number) => {
      send(event('input_audio_buffer.append', { audio: sound(seconds) }));
      hear(event('input_audio_buffer.committed'));
    };

    test.each([
      [
        'tokens',
        { type: 'tokens', input_tokens: 7, output_tokens: 2 },
        { prompt: 7, completion: 2 },
        undefined,
      ],
      ['a duration', { type: 'duration', seconds: 60 }, { prompt: 600, completion: 0 }, 60_000],
      ['tokens of vLLM', { prompt_tokens: 7, completion_tokens: 2 }, { prompt: 7, completion: 2 }, undefined],
      ['as many tokens', { prompt_tokens: 2, completion_tokens: 2 }, { prompt: 2, completion: 2 }, undefined],
    ])('is what is reported as %s, once', (_, usage, tokens, milliseconds) => {
      for (const isOld of [false, true]) {
        const it = begun(isOld);
        speak(it, 10);
        expect(it.usage.awaitsUsage).toBe(true);
        it.hear(event('conversation.item.input_audio_transcription.delta', { delta: WORDS }));
        it.hear(event(COMPLETED, { usage }));
        expect(it.usage.awaitsUsage).toBe(false);
        it.usage.end();
        expect(it.uses).toMatchObject([{ tokens, isEstimated: false }]);
        expect(it.uses[0]?.measured?.milliseconds).toBe(milliseconds);
      }
    });

    test('is estimated as soon as a part is transcribed without a report, and for a part that never is', () => {
      const it = begun();
      speak(it, 10);
      it.hear(event(COMPLETED, { transcript: 'Hello' }));
      const first = {
        tokens: { prompt: 100, cached: 0 },
        isEstimated: true,
        measured: { milliseconds: 10_000 },
      };
      expect(it.uses).toMatchObject([first]);
      speak(it, 5);
      it.usage.end();
      expect(it.uses).toMatchObject([first, { tokens: { prompt: 50, cached: 0 }, isEstimated: true }]);
    });

    test('is nothing for a part that failed', () => {
      const it = begun();
      speak(it, 10);
      it.hear(event('conversation.item.input_audio_transcription.failed', { error: {} }));
      it.usage.end();
      expect(it.uses).toEqual([]);
    });

    test('keeps the sound of parts that are transcribed beside each other', () => {
      const it = begun();
      speak(it, 10);
      speak(it, 5);
      it.hear(event(COMPLETED, { usage: { type: 'duration', seconds: 10 } }));
      it.usage.end();
      expect(it.uses).toMatchObject([{ isEstimated: false }, { tokens: { prompt: 150 }, isEstimated: true }]);
    });

    test('ends with the last event of vLLM, which has no session type', () => {
      const it = reader();
      it.hear(event('session.created', { id: 'sess' }));
      it.send(event('input_audio_buffer.append', { audio: sound(10) }));
      it.hear(event('transcription.delta', { delta: 'Hello' }));
      it.hear(
        event('transcription.done', { text: 'Hello', usage: { prompt_tokens: 7, completion_tokens: 2 } }),
      );
      it.usage.end();
      expect(it.uses).toMatchObject([{ tokens: { prompt: 7, completion: 2 }, isEstimated: false }]);
    });
  });

  test('counts a transcription by its duration beside the answers of a conversation', () => {
    const { usage, uses, hear } = reader();
    hear(event('response.created'));
    hear(
      event('conversation.item.input_audio_transcription.completed', {
        usage: { type: 'duration', seconds: 1.5 },
      }),
    );
    hear(responseDone(3, 4));
    usage.end();
    expect(uses).toMatchObject([
      { tokens: { prompt: 15, completion: 0 }, measured: { milliseconds: 1_500 } },
      { tokens: { prompt: 3, completion: 4 } },
    ]);
  });
});
