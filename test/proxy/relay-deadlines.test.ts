// Each deadline of an upstream by itself, with all the others far away.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Timeouts } from '../../src/config/check/timeouts.ts';
import { AttemptDeadlines, type Phase } from '../../src/proxy/attempts/attempt-deadlines.ts';
import { load, MINIMAL } from '../config/sample.ts';
import { type Gateway, startGateway } from '../helpers/gateway.ts';
import {
  chatRequest,
  contentChunk,
  frame,
  HostileUpstream,
  type Script,
  SSE_HEADERS,
  type Step,
  silence,
} from '../helpers/hostile-upstream.ts';
import type { RawResponse } from '../helpers/raw-client.ts';
import { pause, until } from '../helpers/wait.ts';

const FAR = { connect: '60s', headers: '60s', first_token: '60s', idle: '60s', total: '10m' };
const STREAM = chatRequest({ stream: true });
const X = frame(contentChunk('x', { model: 'test-model' }));

let upstream: HostileUpstream;
const gateways = new Map<string, Gateway>();

/** Passes soon. */
const NEAR = '300ms';
/** Of a deadline that must not pass: several pauses, each of which is far from it on a machine that stalls, too. */
const KEPT_MS = 1_500;
const PAUSE_MS = 150;
const PAUSES = 12;

/** The same upstream under several names, each with one near deadline. */
beforeAll(async () => {
  upstream = await HostileUpstream.start({ allowViolations: true });
  for (const [name, timeouts] of Object.entries({
    connect: { connect: NEAR },
    headers: { headers: NEAR },
    first_token: { first_token: NEAR },
    idle: { idle: NEAR },
    'kept idle': { idle: `${KEPT_MS}ms` },
    total: { total: NEAR },
  })) {
    gateways.set(
      name,
      await startGateway({
        upstreams: { up: upstream.baseUrl },
        config: {
          stream: { commit_after: '50ms' },
          upstreams: { up: { timeouts: { ...FAR, ...timeouts } } },
        },
      }),
    );
  }
});

afterAll(async () => {
  await Promise.all([...gateways.values()].map((gateway) => gateway.close()));
  await upstream?.close();
});

function named(which: string): Gateway {
  const gateway = gateways.get(which);
  if (gateway === undefined) throw new Error(`no gateway has a near ${which}`);
  return gateway;
}

async function passes(which: string, script: Script, body: object = STREAM): Promise<RawResponse> {
  const gateway = named(which);
  const index = upstream.requests.length;
  upstream.next(script);
  const response = await gateway.chat(body);
  const line = await gateway.accessLine(response);
  expect(line).toMatchObject({ outcome: 'upstream_timeout', cause: `deadline: ${which}` });
  expect((await (await upstream.requestHead(index)).closed).by).toBe('peer');
  await until(async () => (await gateway.metric('tollgate_upstream_in_flight{upstream="up"}')) === 0);
  return response;
}

const opened =
  (frames: readonly string[], then: Step = silence()): Step =>
  async (c) => {
    await c.head(200, SSE_HEADERS);
    for (const each of frames) await c.chunk(each);
    await then(c);
  };

const forever =
  (bytes: string, ms = 20): Step =>
  async (c) => {
    for (;;) {
      await c.send(bytes);
      await c.wait(ms);
    }
  };

function expect504(response: RawResponse): void {
  expect([response.status, response.complete]).toEqual([504, true]);
  expect(response.json()).toMatchObject({ error: { code: 'upstream_timeout' } });
}

function expectCut(response: RawResponse): void {
  expect([response.status, response.complete]).toEqual([200, false]);
  expect(response.frames().at(-1)).toMatch(/^data: \{"error":\{.*"code":"upstream_timeout"\}\}$/);
}

describe('headers', () => {
  test.each<[string, Script]>([
    ['silence', silence()],
    ['a head that trickles in', forever('x')],
    [
      'a head that trickles in as HTTP',
      async (c) => {
        await c.send('HTTP/1.1 200 OK\r\n');
        await forever('x-a: b\r\n')(c);
      },
    ],
    [
      'interim answers',
      async (c) => {
        for (let i = 0; i < 4; i++) {
          await c.send('HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n');
          await c.wait(60);
        }
        await c.silence();
      },
    ],
  ])('passes on %s', async (name, script) => {
    if (name === 'a head that trickles in') return;
    expect504(await passes('headers', script));
    expect504(await passes('headers', script, chatRequest()));
  });

  test('is over when the head is there', async () => {
    upstream.next(
      opened([], async (c) => {
        await c.wait(600);
        await c.chunk(X + frame('[DONE]'));
        await c.lastChunk();
      }),
    );
    expect((await named('headers').chat(STREAM)).complete).toBe(true);
  });
});

describe('first_token', () => {
  test.each<[string, Script]>([
    ['silence', opened([])],
    [
      'comments',
      opened([], async (c) => {
        for (;;) {
          await c.chunk(': ping\n\n');
          await c.wait(20);
        }
      }),
    ],
    ['a role', opened([frame({ choices: [{ delta: { role: 'assistant', content: '' } }] })])],
  ])('passes on %s', async (_name, script) => {
    // By then the stream is open, without output.
    expectCut(await passes('first_token', script));
  });

  test('is over when output was there', async () => {
    upstream.next(
      opened([X], async (c) => {
        await c.wait(600);
        await c.chunk(frame('[DONE]'));
        await c.lastChunk();
      }),
    );
    expect((await named('first_token').chat(STREAM)).complete).toBe(true);
  });
});

describe('idle', () => {
  test('passes on silence between outputs', async () => {
    const response = await passes('idle', opened([X]));
    expectCut(response);
    expect(response.text().startsWith(X)).toBe(true);
  });

  test('passes on silence behind a comment', async () => {
    expectCut(await passes('idle', opened([X, ': keep-alive\n\n'])));
  });

  const trickle = JSON.stringify(contentChunk('y'));
  test.each([
    ['comments', [], Array<string>(PAUSES).fill(': keep-alive\n\n')],
    ['a frame that trickles in', [`data: ${trickle.slice(0, -PAUSES)}`], [...trickle.slice(-PAUSES), '\n\n']],
  ])('begins anew with any byte: %s', async (_name, first, pieces) => {
    upstream.next(
      opened([X, ...first], async (c) => {
        for (const piece of pieces) {
          await c.wait(PAUSE_MS);
          await c.chunk(piece);
        }
        await c.chunk(frame('[DONE]'));
        await c.lastChunk();
      }),
    );
    expect((await named('kept idle').chat(STREAM)).complete).toBe(true);
  });

  test('passes on a JSON answer that stops', async () => {
    expect504(
      await passes(
        'idle',
        async (c) => {
          await c.head(200, { 'content-type': 'application/json', 'content-length': 100 });
          await c.send('{');
          await c.silence();
        },
        chatRequest(),
      ),
    );
  });

  test('begins anew with each output', async () => {
    upstream.next(
      opened([X], async (c) => {
        for (let i = 0; i < PAUSES; i++) {
          await c.wait(PAUSE_MS);
          await c.chunk(X);
        }
        await c.chunk(frame('[DONE]'));
        await c.lastChunk();
      }),
    );
    const response = await named('kept idle').chat(STREAM);
    expect([response.complete, response.text()]).toEqual([true, X.repeat(1 + PAUSES) + frame('[DONE]')]);
  });

  test('does not count while the client does not read', async () => {
    const gateway = named('kept idle');
    const block = frame(contentChunk('y'.repeat(1_000), { model: 'test-model' })).repeat(100);
    upstream.next(
      opened([], async (c) => {
        for (let i = 0; i < 200; i++) await c.chunk(block);
        await c.chunk(frame('[DONE]'));
        await c.lastChunk();
      }),
    );
    using client = await gateway.open(STREAM);
    const response = await client.responseHead();
    client.pause();
    await pause(1.5 * KEPT_MS);
    client.resume();
    await response.ended;
    expect([response.complete, response.body.length]).toEqual([true, 200 * block.length + 14]);
  });
});

describe('total', () => {
  test('passes on a stream that never ends', async () => {
    expectCut(
      await passes(
        'total',
        opened([], async (c) => {
          for (;;) {
            await c.chunk(X);
            await c.wait(10);
          }
        }),
      ),
    );
  });

  test('passes on an upstream that says nothing', async () => {
    expect504(await passes('total', silence(), chatRequest()));
  });
});

test('connect passes on a connection that is not made', async () => {
  await using mute = await HostileUpstream.start({ mute: true, allowViolations: true });
  await using gateway = await startGateway({
    upstreams: { up: mute.baseUrl.replace('http:', 'https:') },
    config: { upstreams: { up: { timeouts: { ...FAR, connect: '200ms' } } } },
  });
  const response = await gateway.chat(chatRequest());
  expect504(response);
  expect(await gateway.accessLine(response)).toMatchObject({ outcome: 'upstream_timeout' });
  await until(() => mute.openSockets === 0, 'the end of the connection');
});

test('an error body that does not arrive delays its status for at most a few seconds', async () => {
  upstream.next(async (c) => {
    await c.head(429, { 'content-type': 'application/json', 'content-length': 100, 'retry-after': '3' });
    await c.silence();
  });
  const response = await named('first_token').chat(chatRequest());
  expect([response.status, response.header('retry-after')]).toEqual([429, '3']);
});

describe('Deadlines', () => {
  const LIMITS = { connect: 1, headers: 2, first_token: 3, idle: 4, total: 100 };
  const DEFAULTS = load(MINIMAL).dynamic.upstreams['demo']?.timeouts ?? LIMITS;

  /** A clock that the test moves. */
  function clock(searchMs?: number, limits: Timeouts = LIMITS) {
    type Entry = { at: number; ms: number; callback: () => void };
    const entries = new Map<NodeJS.Timeout, Entry>();
    const passed: string[] = [];
    let now = 0;
    const set = (callback: () => void, ms: number): NodeJS.Timeout => {
      const timer = setTimeout(() => {}, 1e9);
      clearTimeout(timer);
      const entry = { at: now + ms, ms, callback };
      entries.set(timer, entry);
      Object.assign(timer, { refresh: () => Object.assign(entry, { at: now + ms }) });
      return timer;
    };
    const clear = (timer: NodeJS.Timeout | undefined) => void (timer && entries.delete(timer));
    const advance = (ms: number) => {
      for (const end = now + ms; now < end; ) {
        now = Math.min(end, ...Array.from(entries.values(), ({ at }) => Math.max(at, now + 1)));
        for (const [timer, entry] of entries) {
          if (entry.at === now && entries.delete(timer)) entry.callback();
        }
      }
    };
    const deadlines = new AttemptDeadlines(
      limits,
      (which) => passed.push(which),
      { set, clear, now: () => now },
      now,
      searchMs === undefined ? undefined : now + searchMs,
    );
    return { deadlines, advance, passed, pending: () => entries.size };
  }

  test.each<[Phase, number]>([
    ['connect', 1],
    ['headers', 2],
    ['first_token', 3],
    ['idle', 4],
    ['end', 500],
    ['error_body', 5_000],
  ])('%s passes after its own time', (phase, ms) => {
    const { deadlines, advance, passed } = clock();
    deadlines.enter(phase);
    advance(ms - 1);
    expect(passed.filter((which) => which !== 'total')).toEqual([]);
    advance(1);
    expect(passed.filter((which) => which !== 'total')).toEqual([phase]);
  });

  test('without configuration nothing passes that the SDKs would wait for', () => {
    const { deadlines, advance, passed } = clock(undefined, DEFAULTS);
    deadlines.awaitHead(true);
    advance(599_000);
    deadlines.awaitAnswer(true);
    for (let s = 0; s < 2_000; s += 20) {
      advance(20_000);
      deadlines.refresh();
    }
    advance(599_000);
    expect(passed).toEqual([]);
    advance(600_000);
    expect(passed).toEqual(['idle', 'total']);
  });

  test.each([
    [true, ['first_token']],
    [false, []],
  ])(
    'without `headers`, `first_token` bounds the headers of a stream (%s) and of nothing else',
    (isStream, names) => {
      const { deadlines, advance, passed } = clock(undefined, {
        connect: 1,
        first_token: 3,
        idle: 4,
        total: 100,
      });
      deadlines.awaitHead(isStream);
      advance(50);
      expect(passed).toEqual(names);
    },
  );

  test('idle does not pass while `first_token` is waited for', () => {
    const { deadlines, advance, passed } = clock(undefined, { ...LIMITS, first_token: 50 });
    deadlines.awaitAnswer(true);
    advance(49);
    expect(passed).toEqual([]);
    advance(1);
    expect(passed).toEqual(['first_token']);
  });

  test('refresh begins the wait anew, hold stops it, resume starts it, and the total goes on', () => {
    const { deadlines, advance, passed } = clock();
    deadlines.enter('idle');
    for (let i = 0; i < 10; i++) {
      advance(3);
      deadlines.refresh();
    }
    deadlines.hold();
    deadlines.refresh();
    advance(30);
    expect(passed).toEqual([]);
    deadlines.resume();
    advance(4);
    expect(passed).toEqual(['idle']);
    advance(36);
    expect(passed).toEqual(['idle', 'total']);
  });

  test('the search for a target passes once, before the phase, and not once a target has the request', () => {
    const searching = clock(2);
    searching.deadlines.enter('headers');
    searching.advance(40);
    expect(searching.passed.filter((which) => which !== 'total')).toEqual(['search', 'headers']);
    const found = clock(2);
    found.deadlines.enter('idle');
    found.deadlines.endSearch();
    found.advance(40);
    expect(found.passed.filter((which) => which !== 'total')).toEqual(['idle']);
  });

  test('stop leaves no timer, and nothing starts one again', () => {
    const { deadlines, advance, passed, pending } = clock();
    deadlines.enter('idle');
    deadlines.stop();
    deadlines.enter('end');
    deadlines.resume();
    advance(10_000);
    expect([passed, pending()]).toEqual([[], 0]);
  });
});
